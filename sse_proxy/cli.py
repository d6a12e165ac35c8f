"""The command line: arguments and exit codes. Each command imports what it needs when it runs, so all start fast."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from sse_proxy import __version__

if TYPE_CHECKING:
    from sse_proxy.core.options import StreamOptions

__all__ = ["main"]

_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 110}


def _stop(problems: list[str], status: int = 2) -> NoReturn:
    """End the program with one line for each problem."""
    for problem in problems:
        click.echo(f"sse-proxy: {problem}", err=True)
    sys.exit(status)


class _StreamCommand(click.Command):
    """A command that has every stream setting as an option, from the settings' own model.

    The options are made when they are asked for: the other commands shall not wait for that model's import.
    """

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the command's own parameters and one option for each setting."""
        if not any(parameter.name == "dialect" for parameter in self.params):
            from sse_proxy.startup import stream_options

            self.params.extend(stream_options())
        return super().get_params(ctx)


@click.group(context_settings=_CONTEXT)
@click.version_option(__version__, prog_name="sse-proxy")
def main() -> None:
    """Make a legacy chat host's event stream right: a reverse proxy, and the tools to look into a stream."""


@main.command(context_settings=_CONTEXT)
@click.option("-c", "--config", "path", type=click.Path(path_type=Path), help="The configuration file.")
@click.option("--upstream", help="URL of the host, where there is no file.")
@click.option("--preset", help="What is known of the host: gaapi (the default), gachatbot, agui, openai, none.")
@click.option("--listen", help="HOST:PORT to listen on.")
@click.option("--admin", help="HOST:PORT of the admin listener, or off.")
def serve(path: Path | None, upstream: str | None, preset: str | None, listen: str | None, admin: str | None) -> None:
    """Run the proxy."""
    from sse_proxy.run import serve_forever
    from sse_proxy.startup import find_config

    config, source = find_config(path, upstream=upstream, preset=preset, listen=listen, admin=admin)
    sys.exit(serve_forever(config, source))


@main.command(context_settings=_CONTEXT)
@click.option("--once", metavar="QUESTION", help="Ask once, print both answers, exit.")
@click.option("--listen", default="127.0.0.1:8080", show_default=True, help="HOST:PORT of the proxy.")
@click.option("--host", type=click.Choice(["gaapi", "gachatbot"]), default="gaapi", show_default=True)
@click.option("--chunks", type=click.Choice(["743", "a826864"]), default="743", show_default=True)
@click.option("--fail", metavar="KIND", help="Let the host fail: 500, rst, stall, ... (with --once).")
@click.pass_context
def demo(context: click.Context, once: str | None, listen: str, host: str, chunks: str, fail: str | None) -> None:
    """Show the repair: an embedded legacy host, the proxy in front of it, and a page. No network needed."""
    from sse_proxy.demo.knobs import Fail
    from sse_proxy.demo.run import run_demo, run_once

    if fail is not None and fail not in list(Fail):
        _stop([f"--fail: there is no failure {fail!r}; there are {', '.join(Fail)}"])
    if once is not None:
        sys.exit(run_once(once, host=host, chunks=chunks, fail=fail))
    for name in ("host", "chunks", "fail"):
        if context.get_parameter_source(name) is not click.core.ParameterSource.DEFAULT:
            _stop([f"--{name} goes with --once; on the page the question's address says it (?{name}=...)"])
    sys.exit(run_demo(listen))


@main.command(cls=_StreamCommand, context_settings=_CONTEXT)
@click.option("--read-size", type=click.IntRange(1), metavar="N", help="Feed at most N bytes at a time.")
@click.option("--report", is_flag=True, help="Print the ledger as one JSON object on stderr.")
@click.pass_context
def fix(context: click.Context, /, read_size: int | None, report: bool, **settings: Any) -> None:
    """Repair the event stream on stdin to stdout.

    Exit status: 0 the stream was complete, 1 it ended in an error event, 2 bad arguments. There are no timers: the end
    of stdin is a clean end. Settings that need a clock or a network are checked and have no effect here.
    """
    from sse_proxy.filter import run_filter

    options = _filter_options(context, settings)
    if sys.stdin is None or sys.stdout is None:
        _stop(["fix reads stdin and writes stdout, and one of them is closed"])
    status = run_filter(
        options, sys.stdin.buffer, sys.stdout.buffer, read_size=read_size, report=sys.stderr if report else None
    )
    sys.exit(status)


@main.command(cls=_StreamCommand, context_settings=_CONTEXT)
@click.argument("where", metavar="URL|FILE")
@click.option("--data", metavar="JSON", help="POST this body; without it a URL is asked with GET.")
@click.option("-H", "--header", "headers", multiple=True, metavar="'NAME: VALUE'", help="A header of the request.")
@click.pass_context
def read(context: click.Context, /, where: str, data: str | None, headers: tuple[str, ...], **settings: Any) -> None:
    """Show a stream live: its bytes, what each reader gets of it, and what the proxy would make of it.

    A file named - is stdin. All options of `fix` that set how a stream is read are options here.
    """
    from sse_proxy.read import run_read

    wrong = [header for header in headers if ":" not in header]
    if wrong:
        _stop([f"--header: {header!r} has no colon; allowed: 'Name: value'" for header in wrong])
    pairs = {name.strip(): value.strip() for name, _, value in (header.partition(":") for header in headers)}
    sys.exit(run_read(where, _filter_options(context, settings), data=data, headers=pairs))


@main.command("check-config", context_settings=_CONTEXT)
@click.argument("path", metavar="FILE", type=click.Path(path_type=Path))
def check_config(path: Path) -> None:
    """Check a configuration file: exit 0, or 2 with one line for each fault."""
    import os

    from sse_proxy.config import load_config
    from sse_proxy.errors import ConfigError

    try:
        config = load_config(path, os.environ)
    except ConfigError as error:
        _stop(error.problems)
    names = ", ".join(f"{u.name} ({u.url})" for u in config.upstreams)
    click.echo(f"{path}: good. Upstreams: {names}")


@main.command(context_settings=_CONTEXT)
@click.option("--preset", metavar="NAME", help="Print a preset's full values in place of the schema.")
def schema(preset: str | None) -> None:
    """Print the JSON schema of the configuration file, or a preset's values as YAML."""
    import json

    from sse_proxy.config import PRESETS, json_schema, preset_values

    if preset is None:
        click.echo(json.dumps(json_schema(), indent=2))
        return
    if preset not in PRESETS:
        _stop([f"--preset: there is no preset {preset!r}; there are {', '.join(PRESETS)}"])
    import yaml

    click.echo(yaml.safe_dump(preset_values(preset), sort_keys=False, allow_unicode=True), nl=False)


@main.command(context_settings=_CONTEXT)
@click.option("-c", "--config", "path", type=click.Path(path_type=Path), help="The configuration file of the proxy.")
@click.option("--url", help="The address of /readyz, in place of the configuration's.")
@click.option("--timeout", default=3.0, show_default=True, help="Seconds.")
def healthcheck(path: Path | None, url: str | None, timeout: float) -> None:
    """Exit 0 if the local proxy is ready, 1 if it is not. For containers."""
    from sse_proxy.healthcheck import healthcheck as ask
    from sse_proxy.startup import admin_url

    ready, line = ask(url or admin_url(path), timeout)
    click.echo(line, err=not ready)
    sys.exit(0 if ready else 1)


@main.command(context_settings=_CONTEXT)
@click.option("--json", "as_json", is_flag=True, help="Print JSON in place of tables.")
@click.option("--answer", default="improvisation", show_default=True, help="Which of the demo's answers.")
def matrix(as_json: bool, answer: str) -> None:
    """Show every writer with every reader, directly and through the proxy."""
    from sse_proxy.matrix import run_matrix

    try:
        text = run_matrix(json=as_json, answer=answer)
    except ValueError as error:
        _stop([f"--answer: {error}"])
    click.echo(text, nl=False)


def _filter_options(context: click.Context, settings: dict[str, Any]) -> StreamOptions:
    """Return the options of a stream for the settings that were given; problems end the program."""
    from sse_proxy.errors import ConfigError
    from sse_proxy.startup import filter_options

    given = {
        name: value
        for name, value in settings.items()
        if context.get_parameter_source(name) is not click.core.ParameterSource.DEFAULT
    }
    try:
        return filter_options(given)
    except ConfigError as error:
        _stop(error.problems)
