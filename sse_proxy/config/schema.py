"""What the file may say, as a JSON schema for editors, and the presets written out in full."""

from __future__ import annotations

import inspect
import re
from typing import Any

from sse_proxy.config.kinds import FILE, Settings, kind_of, section_of
from sse_proxy.config.models import PRESETS, RouteBase, ServerSettings, UpstreamBase
from sse_proxy.config.presets import PRESET_VALUES
from sse_proxy.config.stream import StreamSettings
from sse_proxy.config.values import show
from sse_proxy.errors import ConfigError

__all__ = ["file_form", "json_schema", "preset_values"]


# Any value may come from the environment, and then is text until it is read.
_VARIABLE = {"$ref": "#/$defs/variable"}
_VARIABLE_TEXT = {"type": "string", "pattern": r"\$\{[A-Za-z_][A-Za-z0-9_]*(:-[^{}]*)?\}"}


def file_form(section: Settings) -> dict[str, Any]:
    """Write a section as the file has it: durations as `15s`, sizes as `64KiB`, `off` as False."""
    model = type(section)
    return {name: _file_value(model, name, getattr(section, name)) for name in model.model_fields}


def _file_value(model: type[Settings], name: str, value: Any) -> Any:
    if isinstance(value, Settings) and section_of(model, name):
        return file_form(value)
    return kind_of(model, name).to_file(value)


def preset_values(name: str) -> dict[str, Any]:
    """Return the full values of a preset as the file has them.

    They have the form of an upstream: settings of streams, which hold for every further route, and `routes`. Written at
    an upstream with `preset: none` they are the same configuration.

    Raises:
        ConfigError: there is no such preset.
    """
    if name not in PRESET_VALUES:
        raise ConfigError([f"preset: found {show(name)}; allowed: {' | '.join(PRESETS)}"])
    written = PRESET_VALUES[name]
    everywhere = {key: value for key, value in written.items() if key != "routes"}
    routes = [
        {**route, "stream": _full({**everywhere, **route["stream"]}) if route["stream"] is not False else False}
        for route in written["routes"]
    ]
    return {**_full(everywhere), "routes": routes}


def _full(values: dict[str, Any]) -> dict[str, Any]:
    return file_form(StreamSettings.model_validate(values, context=FILE))


def json_schema() -> dict[str, Any]:
    """Return the JSON schema (draft 2020-12) of the file, with the defaults of the models and their descriptions.

    It describes single settings; combinations are judged by `parse_config` alone.
    """
    stream = _properties(StreamSettings)
    ref = {"$ref": "#/$defs/stream"}
    route = {
        **_properties(RouteBase),
        "stream": {"anyOf": [ref, {"enum": [False, "off"]}, _VARIABLE], "default": {}, "description": _STREAM},
    }
    upstream = {
        **_properties(UpstreamBase),
        **{key: {k: v for k, v in schema.items() if k != "default"} for key, schema in stream.items()},
        "routes": {"type": "array", "items": {"$ref": "#/$defs/route"}, "default": [], "description": _ROUTES},
    }
    top = {
        **_properties(ServerSettings),
        "defaults": {**ref, "default": {}, "description": "Settings of every stream of every upstream."},
        "upstreams": {"type": "array", "items": {"$ref": "#/$defs/upstream"}, "minItems": 1},
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "sse_proxy configuration",
        **_object(top, ["upstreams"]),
        "$defs": {
            "variable": _VARIABLE_TEXT,
            "stream": _object(stream, []),
            "route": _object(route, ["path"]),
            "upstream": _object(upstream, ["name", "url"]),
        },
    }


_STREAM = "Settings of this route's event streams; off passes them on byte for byte."
_ROUTES = "The preset's own come first; one with the same path and method changes the keys it names."


def _object(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object", "additionalProperties": False, "properties": properties}
    return {**schema, "required": required} if required else schema


def _properties(model: type[Settings]) -> dict[str, Any]:
    """Return the schemas of a section's settings by name."""
    words = _descriptions(model)
    properties: dict[str, Any] = {}
    for name, info in model.model_fields.items():
        kind = kind_of(model, name)
        section = section_of(model, name)
        needed = [key for key, inner in section.model_fields.items() if inner.is_required()] if section else []
        written = kind.json_schema(_object(_properties(section), needed) if section else None)
        options = written["anyOf"] if set(written) == {"anyOf"} else [written]
        any_text = {"type": "string"} in options or {"type": "string", "minLength": 1} in options
        options = options if any_text else [*options, _VARIABLE]
        schema: dict[str, Any] = {"anyOf": options} if len(options) > 1 else dict(options[0])
        default = info.get_default(call_default_factory=True)
        if not info.is_required() and (default is not None or kind.off):
            schema["default"] = _file_value(model, name, default)
        if name in words:
            schema["description"] = words[name]
        properties[name] = schema
    return properties


def _descriptions(model: type[Settings]) -> dict[str, str]:
    """Return what a section's docstring says of its attributes, so that it is said once."""
    _, _, listed = inspect.cleandoc(model.__doc__ or "").partition("Attributes:\n")
    found: dict[str, str] = {}
    for names, words in re.findall(r"^    (\w[\w, ]*): (.*(?:\n {8}.*)*)", listed, re.MULTILINE):
        for name in names.split(", "):
            found[name] = re.sub(r"\bNone\b", "off", " ".join(words.split()))
    return found
