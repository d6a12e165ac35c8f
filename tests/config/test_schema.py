"""The JSON schema that editors use: every setting, its form in the file, its default and what it is."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from sse_proxy.config import ConfigError, StreamSettings, json_schema, preset_values
from sse_proxy.config.models import RouteBase, ServerSettings, UpstreamBase
from sse_proxy.config.schema import file_form

SCHEMA = json_schema()
DEFS: dict[str, Any] = SCHEMA["$defs"]


def setting(section: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = section["properties"][name]
    return found


def test_it_is_json() -> None:
    assert json.loads(json.dumps(SCHEMA)) == SCHEMA


def test_every_section_has_exactly_its_keys() -> None:
    assert set(SCHEMA["properties"]) == {*ServerSettings.model_fields, "defaults", "upstreams"}
    assert set(DEFS["stream"]["properties"]) == set(StreamSettings.model_fields)
    assert set(DEFS["route"]["properties"]) == {*RouteBase.model_fields, "stream"}
    assert set(DEFS["upstream"]["properties"]) == {
        *UpstreamBase.model_fields,
        *StreamSettings.model_fields,
        "routes",
    }


def test_unknown_keys_are_refused_and_what_is_needed_is_named() -> None:
    for section in (SCHEMA, DEFS["stream"], DEFS["route"], DEFS["upstream"]):
        assert section["type"] == "object"
        assert section["additionalProperties"] is False
    assert SCHEMA["required"] == ["upstreams"]
    assert DEFS["upstream"]["required"] == ["name", "url"]
    assert DEFS["route"]["required"] == ["path"]
    assert "required" not in DEFS["stream"]
    [tls, *_] = setting(SCHEMA, "tls")["anyOf"]
    assert tls["required"] == ["cert", "key"]


def test_every_reference_leads_somewhere() -> None:
    for name in re.findall(r'"#/\$defs/(\w+)"', json.dumps(SCHEMA)):
        assert name in DEFS


def test_every_setting_is_described() -> None:
    for section in (DEFS["stream"], DEFS["route"]):
        for name, schema in section["properties"].items():
            assert schema.get("description"), name
            assert "None" not in schema["description"], name


def test_the_defaults_are_those_of_the_models_as_a_file_has_them() -> None:
    built_in = file_form(StreamSettings())
    assert {name: schema["default"] for name, schema in DEFS["stream"]["properties"].items()} == built_in
    server = file_form(ServerSettings())
    assert {name: setting(SCHEMA, name)["default"] for name in server} == server
    # At an upstream the default of a stream's setting is whatever the layers below it say.
    assert "default" not in setting(DEFS["upstream"], "keepalive")
    assert setting(DEFS["upstream"], "connect_timeout")["default"] == "5s"


def test_the_forms_of_single_settings() -> None:
    variable = {"$ref": "#/$defs/variable"}
    off = {"enum": [False, "off"]}
    duration, *others = setting(DEFS["stream"], "keepalive")["anyOf"]
    assert others == [off, variable]
    for text, good in (("15s", True), ("0.5s", True), ("200ms", True), ("15", False), ("15 s", False), ("1d", False)):
        assert bool(re.search(duration["pattern"], text)) is good
    size, *others = setting(DEFS["stream"], "max_event")["anyOf"]
    assert others == [variable]
    for text, good in (("16MiB", True), ("64kB", True), ("16", False), ("16M", False)):
        assert bool(re.search(size["pattern"], text)) is good
    assert setting(DEFS["stream"], "dialect")["anyOf"] == [
        {"enum": ["standard", "single-prefix", "auto", "lines", "raw"]},
        variable,
    ]
    assert setting(DEFS["stream"], "keepalive_blank_line")["anyOf"] == [{"type": "boolean"}, variable]
    assert setting(SCHEMA, "max_streams")["anyOf"] == [
        {"type": "integer", "minimum": 1, "maximum": 1_000_000},
        variable,
    ]
    assert setting(DEFS["stream"], "keepalive_text")["type"] == "string"
    assert re.search(DEFS["variable"]["pattern"], "${NAME:-x}")
    [ca_file] = [s for s in setting(DEFS["upstream"], "tls")["anyOf"] if "properties" in s]
    assert {"type": "null"} in ca_file["properties"]["ca_file"]["anyOf"]


def test_a_preset_that_is_not_known() -> None:
    with pytest.raises(ConfigError) as caught:
        preset_values("gapi")
    assert caught.value.problems == ['preset: found "gapi"; allowed: gaapi | gachatbot | agui | openai | none']


def test_the_values_of_a_preset_are_in_the_form_of_the_file() -> None:
    values = preset_values("gaapi")
    assert (values["idle_timeout"], values["stall_timeout"], values["max_event"]) == ("300s", False, "16MiB")
    assert (values["done"], values["dialect"], values["cors"]) == ("[DONE]", "auto", "upstream")
    assert type(values["dialect"]) is str
    assert values["routes"][1]["stream"]["done"] is False
    assert values["routes"][2] == {"path": "/hubs/*", "stream": False}
