"""From arguments and environment to settings: what `serve`, `fix` and `healthcheck` start with."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

import click

from sse_proxy.config import Config, StreamSettings, config_for_upstream, load_config, preset_values
from sse_proxy.config.kinds import kind_of
from sse_proxy.config.stream import impossible
from sse_proxy.config.values import Refused
from sse_proxy.core.options import StreamOptions
from sse_proxy.errors import ConfigError

__all__ = ["admin_url", "filter_options", "find_config", "stream_options"]

DEFAULT_FILE = Path("/etc/sse-proxy/config.yaml")
_LISTS = ("done", "end_types", "error_types", "known_messages")
_SECTIONS = ("json",)


def stream_options() -> list[click.Parameter]:
    """Return one option for each stream setting, named as its key (`--strip-double-prefix`)."""
    defaults = _gaapi_stream()
    options: list[click.Parameter] = []
    for name, field in StreamSettings.model_fields.items():
        if name in _SECTIONS:
            continue
        flag = f"--{name.replace('_', '-')}"
        default = defaults.get(name)
        if field.annotation is bool:
            shown = "on" if default else "off"
            options.append(click.Option([f"{flag}/--no-{flag[2:]}"], default=None, help=f"[default: {shown}]"))
            continue
        text = kind_of(StreamSettings, name).allowed
        help_text = f"{text}  [default: {'off' if default is False else default}]"
        options.append(click.Option([flag], multiple=name in _LISTS, metavar=name.upper(), help=help_text))
    return options


def _gaapi_stream() -> dict[str, Any]:
    """The stream settings that `fix` starts from: those of the gaapi preset's chat route, in file form."""
    route = preset_values("gaapi")["routes"][0]
    values: dict[str, Any] = dict(route["stream"])
    return values


def filter_options(given: dict[str, Any]) -> StreamOptions:
    """Return the options of `fix` for the settings that were given.

    `--done ""` means no marker: `require_done: false`, and no events of our own. What is not given follows what is:
    a payload that is not text is not split.

    Raises:
        ConfigError: one problem for each setting that cannot be.
    """
    values = _gaapi_stream()
    problems: list[str] = []
    no_marker = given.get("done") in (("",), ("off",))
    for name, value in given.items():
        values[name] = _file_value(name, value)
    if no_marker:
        values["done"] = False
        if "require_done" not in given:
            values["require_done"] = bool(given.get("end_types"))
    if values["dialect"] == "raw":
        values["payload"] = "text"  # it is, whatever else was said; its lines are the only places to cut at
        if values["split"] == "none":
            values["split"] = "line"
        if "done" not in given:
            values["done"], values["require_done"] = False, False
    if values["payload"] != "text":
        values["split"] = values["split"] if "split" in given else "none"
        values["restore_whitespace"] = False
    parsed: dict[str, Any] = {}
    for name in StreamSettings.model_fields:
        if name in _SECTIONS:
            continue
        try:
            parsed[name] = kind_of(StreamSettings, name).check(values[name], True)
        except Refused as refused:
            problems.append(f"--{name.replace('_', '-')}: {refused}")
    if problems:
        raise ConfigError(problems)
    settings = StreamSettings.model_construct(**parsed, json=StreamSettings.model_fields["json"].default)
    if faults := impossible(settings):
        raise ConfigError([message for _, message in faults])
    options = settings.options()
    return dataclasses.replace(options, own_events=False) if no_marker else options


def _file_value(name: str, value: Any) -> Any:
    """Return an option's value as the file would have it."""
    if name == "done" and value == ("",):
        return False
    if name in _LISTS:
        return list(value)
    return False if value == "off" else value


def find_config(
    path: Path | None, *, upstream: str | None, preset: str | None, listen: str | None, admin: str | None
) -> tuple[Config, Path | None]:
    """Return the configuration `serve` runs with, and the file it came from; None without one.

    The file is `-c`, else `SSE_PROXY_CONFIG`; without either, `--upstream` or `SSE_PROXY_UPSTREAM` alone is enough, and
    else /etc/sse-proxy/config.yaml. Problems end the program.
    """
    from sse_proxy.cli import _stop

    try:
        if path is None and upstream is None and (named := os.environ.get("SSE_PROXY_CONFIG")):
            path = Path(named)
        if path is None and (url := upstream or os.environ.get("SSE_PROXY_UPSTREAM")):
            listen = listen or os.environ.get("SSE_PROXY_LISTEN")
            admin = admin or os.environ.get("SSE_PROXY_ADMIN")
            return config_for_upstream(url, preset=preset or "gaapi", listen=listen, admin=admin), None
        if path is None and not DEFAULT_FILE.exists():
            _stop(["nothing to serve: give -c FILE, or --upstream URL (or set SSE_PROXY_UPSTREAM)"])
        if upstream is not None or preset is not None:
            _stop(["--upstream and --preset are for starting without a file; with -c they would say it twice"])
        path = path or DEFAULT_FILE
        overlay = {key: value for key, value in (("SSE_PROXY_LISTEN", listen), ("SSE_PROXY_ADMIN", admin)) if value}
        config = load_config(path, {**os.environ, **overlay})
        if listen or admin:
            config = _listening(config, listen, admin)
        return config, path
    except ConfigError as error:
        _stop(error.problems)


def _listening(config: Config, listen: str | None, admin: str | None) -> Config:
    """Return `config` with its listeners replaced."""
    probe = config_for_upstream("http://localhost", listen=listen, admin=admin)
    changes: dict[str, Any] = {}
    if listen:
        changes["listen"] = probe.listen
    if admin:
        changes["admin"] = probe.admin
    return config.model_copy(update=changes)


def admin_url(path: Path | None) -> str:
    """Return the address `healthcheck` asks: that of the configuration `serve` would run with, else the default one."""
    from sse_proxy.cli import _stop
    from sse_proxy.healthcheck import readyz_url

    named = path or os.environ.get("SSE_PROXY_CONFIG") or os.environ.get("SSE_PROXY_UPSTREAM") or DEFAULT_FILE.exists()
    if not named:
        return readyz_url("127.0.0.1", 9901)
    config, _ = find_config(path, upstream=None, preset=None, listen=None, admin=None)
    if config.admin is None:
        _stop(["the configuration has no admin listener (admin: off), so nothing can be asked"])
    return readyz_url(config.admin.host, config.admin.port, config.admin.path)
