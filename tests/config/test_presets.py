"""What the presets say of their hosts, and that the example of the repository says the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from sse_proxy.config import PRESETS, Route, StreamSettings, Upstream, config_for_upstream, parse_config, preset_values
from sse_proxy.config.models import ServerSettings, UpstreamBase
from sse_proxy.config.presets import PRESET_VALUES
from sse_proxy.config.schema import file_form

EXAMPLE = Path(__file__).parent.parent.parent / "config" / "example.yaml"


def upstream(preset: str) -> Upstream:
    return config_for_upstream("http://localhost:5232", preset=preset).upstreams[0]


def stream(preset: str, method: str, path: str) -> StreamSettings:
    route = upstream(preset).route_for(method, path)
    assert route is not None
    assert route.stream is not None
    return route.stream


def routes(preset: str) -> list[tuple[str, tuple[str, ...] | None, bool]]:
    return [(route.path, route.methods, route.stream is not None) for route in upstream(preset).routes]


def test_the_names_are_those_of_the_values() -> None:
    assert set(PRESETS) == set(PRESET_VALUES)


@pytest.mark.parametrize("base", ["", "/chatbot"])
def test_the_routes_of_the_guitar_alchemist_hosts(base: str) -> None:
    preset = "gachatbot" if base else "gaapi"
    assert routes(preset) == [
        (f"{base}/api/chatbot/chat/stream", ("POST",), True),
        (f"{base}/api/chatbot/agui/stream", ("POST",), True),
        (f"{base}/hubs/*", None, False),
    ]
    chat = stream(preset, "POST", f"{base}/api/chatbot/chat/stream")
    assert chat.json.path == f"{base}/api/chatbot/chat"


def test_gachatbot_is_gaapi_but_for_its_paths() -> None:
    one, other = upstream("gaapi"), upstream("gachatbot")
    assert one.undeclared == other.undeclared
    for mine, theirs in zip(one.routes, other.routes, strict=True):
        if mine.stream and theirs.stream:
            assert theirs.stream.model_copy(update={"json": mine.stream.json}) == mine.stream


def test_the_chat_stream_of_gaapi() -> None:
    chat = file_form(stream("gaapi", "POST", "/api/chatbot/chat/stream"))
    built_in = file_form(StreamSettings())
    assert {key: value for key, value in chat.items() if value != built_in[key]} == {
        "json": {
            "path": "/api/chatbot/chat",
            "answer": "/naturalLanguageAnswer",
            "meta": {"type": "routing"},
            "omit": ["elapsedMs", "traceId"],
        },
        "dialect": "auto",
        "chunker": "sentence",
        "payload": "text",
        "split": "sentence",
        "restore_whitespace": True,
        "done": "[DONE]",
        "require_done": True,
        "known_messages": ["Failed to process message. Please try again.", "Service is busy"],
        "idle_timeout": "300s",
        "scrub_history": True,
    }


def test_the_agui_stream_of_gaapi() -> None:
    agui = file_form(stream("gaapi", "POST", "/api/chatbot/agui/stream"))
    built_in = file_form(StreamSettings())
    del agui["json"], agui["known_messages"]
    assert {key: value for key, value in agui.items() if value != built_in[key]} == {
        "payload": "json",
        "end_types": ["RUN_FINISHED"],
        "error_types": ["RUN_ERROR"],
        "require_done": True,
        "idle_timeout": "300s",
    }


def test_an_agui_host() -> None:
    assert routes("agui") == [("/agui", ("POST",), True), ("/agui/*", ("POST",), True)]
    run = stream("agui", "POST", "/agui/agents/7")
    assert (run.dialect, run.payload, run.split, run.done) == ("standard", "json", "none", ())
    assert (run.end_types, run.error_types, run.require_done) == (("RUN_FINISHED",), ("RUN_ERROR",), True)


def test_an_openai_host() -> None:
    assert [path for path, methods, on in routes("openai") if methods == ("POST",) and on] == [
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/responses",
    ]
    for path in ("/v1/chat/completions", "/v1/completions"):
        chat = stream("openai", "POST", path)
        assert (chat.dialect, chat.payload, chat.split, chat.done) == ("standard", "json", "none", ("[DONE]",))
        assert (chat.errors, chat.require_done) == ("status", True)
    responses = stream("openai", "POST", "/v1/responses")
    assert responses.done == ()
    assert responses.end_types == ("response.completed", "response.incomplete")
    assert responses.error_types == ("response.failed", "error")
    assert (responses.errors, responses.require_done) == ("status", True)


def test_no_preset_is_the_built_in_settings() -> None:
    assert routes("none") == []
    assert upstream("none").undeclared == StreamSettings()


@pytest.mark.parametrize("name", PRESETS)
def test_an_undeclared_stream_is_read_by_the_standard_and_passed_one_to_one(name: str) -> None:
    undeclared = upstream(name).undeclared
    clocks = {"idle_timeout": 60.0, "known_messages": ()}
    assert undeclared.model_copy(update=clocks) == StreamSettings()


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_written_out_is_the_preset(name: str) -> None:
    written = preset_values(name)
    assert set(written) == {*StreamSettings.model_fields, "routes"}
    for route in written["routes"]:
        assert route["stream"] is False or set(route["stream"]) == set(StreamSettings.model_fields)
    text = yaml.safe_dump({"upstreams": [{"name": "a", "url": "http://h", "preset": "none", **written}]})
    [again] = parse_config(text, {}).upstreams
    assert again.routes == upstream(name).routes
    assert again.undeclared == upstream(name).undeclared


def test_the_example_names_every_setting_once() -> None:
    example = yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))
    assert set(example) == {*ServerSettings.model_fields, "defaults", "upstreams"}
    [host] = example["upstreams"]
    assert set(host) == {*UpstreamBase.model_fields, "routes"}
    assert set(host["routes"][0]["stream"]) == set(StreamSettings.model_fields)


def test_the_example_states_the_defaults() -> None:
    example = yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))
    [host] = example["upstreams"]
    built_in = file_form(ServerSettings())
    assert {key: example[key] for key in built_in} == built_in
    base = file_form(UpstreamBase(name="gaapi", url="http://localhost:5232"))
    assert {key: host[key] for key in base} == base
    assert example["defaults"] == {"keepalive": file_form(StreamSettings())["keepalive"]}
    preset = preset_values("gaapi")
    assert [route["path"] for route in host["routes"]] == [route["path"] for route in preset["routes"]]
    for stated, route in zip(host["routes"], preset["routes"], strict=True):
        assert stated.get("methods") == route.get("methods")
        if route["stream"] is False:
            assert stated["stream"] is False
            continue
        for key, value in stated["stream"].items():
            # The one setting whose built-in default is shown, because the list of the preset is in the preset.
            expected: Any = [] if key == "known_messages" else route["stream"][key]
            assert value == expected, key


def test_the_example_is_the_preset() -> None:
    [host] = parse_config(EXAMPLE.read_text(encoding="utf-8"), {}).upstreams
    plain = upstream("gaapi")
    assert host.undeclared == plain.undeclared

    def without_messages(route: Route) -> Route:
        settings = route.stream and route.stream.model_copy(update={"known_messages": ()})
        return route.model_copy(update={"stream": settings})

    assert [without_messages(route) for route in host.routes] == [without_messages(route) for route in plain.routes]
