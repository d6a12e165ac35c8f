"""The configuration: one YAML file to a frozen `Config`, or every fault of it at once.

`tree` reads the text, `loader` checks and merges it, `models` and `stream` are what comes out, `presets` what is known
of some hosts, and `schema` describes it all. `kinds`, `values` and `places` are how single settings are written.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from sse_proxy.config.loader import Loader
from sse_proxy.config.models import (
    PRESETS,
    Capture,
    Config,
    Listen,
    LogSettings,
    Match,
    Route,
    ServerTls,
    Upstream,
    UpstreamTls,
)
from sse_proxy.config.schema import json_schema, preset_values
from sse_proxy.config.stream import JsonSource, StreamSettings
from sse_proxy.config.tree import LARGEST_FILE, Tree, read_tree
from sse_proxy.config.values import parse_duration, parse_size, show
from sse_proxy.errors import ConfigError

__all__ = [
    "PRESETS",
    "Capture",
    "Config",
    "ConfigError",
    "JsonSource",
    "Listen",
    "LogSettings",
    "Match",
    "Route",
    "ServerTls",
    "StreamSettings",
    "Upstream",
    "UpstreamTls",
    "config_for_upstream",
    "json_schema",
    "load_config",
    "parse_config",
    "parse_duration",
    "parse_size",
    "preset_values",
]


def load_config(path: Path, env: Mapping[str, str]) -> Config:
    """Read a configuration file.

    Args:
        path: of the file, YAML in UTF-8 of at most 1 MiB.
        env: what `${NAME}` is taken from, usually `os.environ`.

    Raises:
        ConfigError: it cannot be read or used; one problem per fault, all of them.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(LARGEST_FILE + 1)
    except FileNotFoundError:
        raise ConfigError([f"{path}: there is no such file"]) from None
    except IsADirectoryError:
        raise ConfigError([f"{path}: is a directory; allowed: a YAML file"]) from None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise ConfigError([f"{show(str(path))}: cannot be read ({why})"]) from None
    if len(raw) > LARGEST_FILE:
        raise ConfigError([f"{path}: larger than {LARGEST_FILE // 1024} KiB"])
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ConfigError([f"{path}: is not text in UTF-8 (line {line}, byte {error.start})"]) from None
    return parse_config(text, env, str(path))


def parse_config(text: str, env: Mapping[str, str], source: str = "<config>") -> Config:
    """Read a configuration from its text; `source` names it where a problem has no path.

    Raises:
        ConfigError: it cannot be used; one problem per fault, all of them.
    """
    return Loader(read_tree(text, env), source).load()


def config_for_upstream(
    url: str, *, preset: str = "gaapi", listen: str | None = None, admin: str | None = None
) -> Config:
    """Make the configuration of one upstream without a file: the defaults, and what is given here.

    Args:
        url: of the upstream.
        preset: one of PRESETS.
        listen, admin: as in the file, `off` for no admin listener; None for the default.

    Raises:
        ConfigError: one of the arguments cannot be used.
    """
    tree = Tree()
    name = preset if preset in PRESETS and preset != "none" else "upstream"
    tree.value = {"upstreams": [{"name": name, "url": url, "preset": preset}]}
    if listen is not None:
        tree.value["listen"] = listen
    if admin is not None:
        tree.value["admin"] = False if admin == "off" else admin
    return Loader(tree, "<arguments>", short={("upstreams", 0): ()}).load()
