"""From a file to a configuration: what is merged over what, and which upstream and route a request finds."""

from __future__ import annotations

import time
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from sse_proxy.config import (
    PRESETS,
    Capture,
    Config,
    JsonSource,
    Listen,
    LogSettings,
    Match,
    Route,
    StreamSettings,
    Upstream,
    UpstreamTls,
    config_for_upstream,
    load_config,
    parse_config,
)
from sse_proxy.core.options import Chunker, Dialect, Payload, Reader, Split, StreamOptions

ROOT = Path(__file__).parent.parent.parent
CONFIGS = sorted((ROOT / "config").glob("*.yaml"))
CHAT = "/api/chatbot/chat/stream"
AGUI = "/api/chatbot/agui/stream"


def config_of(*upstreams: dict[str, Any], env: dict[str, str] | None = None, **top: Any) -> Config:
    """A configuration of upstreams that have a name and a URL unless they bring their own."""
    items = [{"name": f"u{i}", "url": "http://h", **upstream} for i, upstream in enumerate(upstreams)]
    return parse_config(yaml.safe_dump({**top, "upstreams": items}), env or {})


def stream_of(upstream: Upstream, path: str, method: str = "POST") -> StreamSettings:
    route = upstream.route_for(method, path)
    assert route is not None
    assert route.stream is not None
    return route.stream


# ---- files ----


def test_there_are_files() -> None:
    assert {"example.yaml", "gaapi.yaml", "gachatbot.yaml"} <= {file.name for file in CONFIGS}


@pytest.mark.parametrize("file", CONFIGS, ids=lambda file: file.name)
def test_every_file_of_the_repository_loads(file: Path) -> None:
    config = load_config(file, {})
    assert config.upstreams
    assert load_config(file, {"SSE_PROXY_UPSTREAM": "http://elsewhere:1"}).upstreams


def test_the_container_is_configured_by_its_environment() -> None:
    plain = load_config(ROOT / "config" / "gaapi.yaml", {})
    assert (str(plain.listen), str(plain.admin)) == ("0.0.0.0:8080", "127.0.0.1:9901")
    assert plain.upstreams == config_for_upstream("http://localhost:5232").upstreams
    env = {
        "SSE_PROXY_UPSTREAM": "https://chat.example:7184/",
        "SSE_PROXY_LISTEN": "[::]:80",
        "SSE_PROXY_ADMIN": "off",
        "SSE_PROXY_LOG_LEVEL": "debug",
        "SSE_PROXY_LOG_FORMAT": "json",
    }
    changed = load_config(ROOT / "config" / "gaapi.yaml", env)
    assert changed.listen == Listen(host="::", port=80)
    assert changed.admin is None
    assert changed.log == LogSettings(level="debug", format="json")
    assert changed.upstreams[0].url == "https://chat.example:7184"


def test_a_byte_order_mark_and_crlf_are_no_matter(tmp_path: Path) -> None:
    text = (ROOT / "config" / "example.yaml").read_text(encoding="utf-8")
    file = tmp_path / "config.yaml"
    file.write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    assert load_config(file, {}) == parse_config(text, {})


# ---- single settings ----


def test_the_defaults_of_a_server() -> None:
    config = config_of({})
    assert str(config.listen) == "127.0.0.1:8080"
    assert str(config.admin) == "127.0.0.1:9901"
    assert config.log == LogSettings(level="info", format="text")
    assert (config.tls, config.capture, config.transcript, config.trusted_proxies) == (None, None, None, ())
    assert (config.max_streams, config.max_header) == (1000, 65536)
    assert (config.head_timeout, config.body_timeout, config.drain_timeout) == (10.0, 60.0, 30.0)


def test_the_settings_of_a_server() -> None:
    config = config_of(
        {},
        admin=False,
        log={"level": "warning"},
        trusted_proxies=["10.0.0.0/8", "::1"],
        body_timeout="off",
        capture={"keep": 3},
        max_header="16KiB",
    )
    assert config.admin is None
    assert config.log == LogSettings(level="warning", format="text")
    assert config.trusted_proxies == (ip_network("10.0.0.0/8"), ip_network("::1/128"))
    assert config.body_timeout is None
    assert config.capture == Capture(keep=3, max_bytes=256 * 1024)
    assert config.max_header == 16384


@pytest.mark.parametrize(
    ("text", "listen"),
    [
        ("127.0.0.1:8080", Listen(host="127.0.0.1", port=8080)),
        ("localhost:0", Listen(host="localhost", port=0)),
        ("0.0.0.0:65535", Listen(host="0.0.0.0", port=65535)),
        ("[::]:80", Listen(host="::", port=80)),
        ("[::1]:8080", Listen(host="::1", port=8080)),
        ("host-1.example.org:1", Listen(host="host-1.example.org", port=1)),
        ("unix:/run/sse proxy.sock", Listen(path="/run/sse proxy.sock")),
    ],
)
def test_where_to_listen(text: str, listen: Listen) -> None:
    config = config_of({}, listen=text, admin=False)
    assert config.listen == listen
    assert str(config.listen) == text


@pytest.mark.parametrize(
    ("one", "other", "overlap"),
    [
        ("127.0.0.1:80", "127.0.0.1:80", True),
        ("127.0.0.1:80", "127.0.0.1:81", False),
        ("127.0.0.1:80", "127.0.0.2:80", False),
        ("0.0.0.0:80", "127.0.0.1:80", True),
        ("127.0.0.1:80", "[::]:80", True),
        ("localhost:80", "127.0.0.1:80", True),
        ("127.0.0.1:0", "127.0.0.1:0", False),
        ("unix:/a", "unix:/a", True),
        ("unix:/a", "unix:/b", False),
        ("unix:/a", "127.0.0.1:80", False),
    ],
)
def test_two_listeners_in_one_place(one: str, other: str, overlap: bool) -> None:
    assert Listen.parse(one).overlaps(Listen.parse(other)) is overlap
    assert Listen.parse(other).overlaps(Listen.parse(one)) is overlap


@pytest.mark.parametrize(
    ("written", "url"),
    [
        ("http://h", "http://h"),
        ("http://h/", "http://h"),
        ("HTTP://h:80/a/b//", "http://h:80/a/b"),
        ("https://[::1]:7184/x%20y/", "https://[::1]:7184/x%20y"),
        ("http://user.name.example/a@b", "http://user.name.example/a@b"),
    ],
)
def test_urls(written: str, url: str) -> None:
    assert config_of({"url": written}).upstreams[0].url == url


def test_the_settings_of_an_upstream(tmp_path: Path) -> None:
    ca_file = tmp_path / "ca.pem"
    ca_file.write_text("x")
    [upstream] = config_of(
        {
            "match": {"path": "/a/b", "host": "Chat.Example."},
            "strip_prefix": "/a",
            "mode": "observe",
            "host_header": "client",
            "tls": {"ca_file": str(ca_file)},
            "connect_timeout": "500ms",
            "response_timeout": False,
        }
    ).upstreams
    assert upstream.match == Match(path="/a/b", host="chat.example")
    assert (upstream.strip_prefix, upstream.mode, upstream.host_header) == ("/a", "observe", "client")
    assert upstream.tls == UpstreamTls(verify=True, ca_file=ca_file)
    assert (upstream.connect_timeout, upstream.response_timeout) == (0.5, None)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"done": "[DONE]"}, {"done": ("[DONE]",)}),
        ({"done": ["[DONE]", "[END]"]}, {"done": ("[DONE]", "[END]")}),
        ({"done": False}, {"done": ()}),
        ({"done": "off"}, {"done": ("off",)}),  # in quotes it is text
        ({"error_event": False}, {"error_event": None}),
        ({"error_event": "off"}, {"error_event": "off"}),
        ({"keepalive": "off"}, {"keepalive": None}),  # here a text could mean nothing else
        ({"keepalive": "100ms", "commit_after": False}, {"keepalive": 0.1, "commit_after": None}),
        ({"keepalive_text": ""}, {"keepalive_text": ""}),
        ({"cors": False}, {"cors": None}),
        ({"cors": "upstream"}, {"cors": "upstream"}),
        ({"cors": ["https://A.example:443", "http://b:80", "http://b"]}, {"cors": ("https://a.example", "http://b")}),
        ({"cors": ["http://b:8080", "*"]}, {"cors": ("http://b:8080", "*")}),
        ({"max_chunk": "1MiB", "max_event": "1GiB"}, {"max_chunk": 2**20, "max_event": 2**30}),
        ({"known_messages": ["Busy.", "Später."]}, {"known_messages": ("Busy.", "Später.")}),
        ({"errors": "status", "scrub_history": True}, {"errors": "status", "scrub_history": True}),
        ({"payload": "json", "end_types": ["X"]}, {"payload": Payload.JSON, "end_types": ("X",), "require_done": True}),
        ({"payload": "text", "split": "line"}, {"split": Split.LINE, "require_done": False}),
        ({"dialect": "raw", "payload": "text"}, {"dialect": Dialect.RAW}),
        ({"restore_whitespace": True}, {"restore_whitespace": True}),  # without effect, but no harm
    ],
)
def test_the_settings_of_a_stream(settings: dict[str, Any], expected: dict[str, Any]) -> None:
    [upstream] = config_of({"preset": "none", "routes": [{"path": "/a", "stream": settings}]}).upstreams
    stream = stream_of(upstream, "/a")
    assert {key: getattr(stream, key) for key in expected} == expected


def test_an_unquoted_marker_is_a_list_of_one() -> None:
    text = "upstreams: [{name: a, url: 'http://h', preset: none, routes: [{path: /a, stream: {done: [DONE]}}]}]"
    assert stream_of(parse_config(text, {}).upstreams[0], "/a").done == ("DONE",)


def test_the_json_twin() -> None:
    twin = {"path": "/twin", "answer": "/reply/0/a~1b", "meta": {"type": "routing", "n": [1, None]}, "omit": ["x"]}
    stream = {"source": "json", "payload": "text", "json": twin}
    [upstream] = config_of({"preset": "none", "routes": [{"path": "/a", "stream": stream}]}).upstreams
    expected = JsonSource(path="/twin", answer="/reply/0/a~1b", meta={"type": "routing", "n": [1, None]}, omit=("x",))
    assert stream_of(upstream, "/a").json == expected


def test_variables_take_the_type_of_their_setting() -> None:
    env = {"N": "7", "OFF": "off", "YES": "true", "SIZE": "2KiB", "TEXT": "42", "MARK": "[DONE]", "LEVEL": "debug"}
    text = """
    max_streams: ${N}
    admin: ${OFF}
    log: {level: "${LEVEL}"}
    upstreams:
      - name: ${TEXT}
        url: http://${NAME:-h}:${PORT:-80}
        keepalive: ${OFF}
        max_chunk: ${SIZE}
        keepalive_blank_line: ${YES}
        keepalive_text: ${TEXT}
        error_event: ${OFF}
        done: ${MARK}
        error_message: Call $${TEXT} or ${TEXT}.
        routes:
          - path: /hub
            stream: ${OFF}
    """
    config = parse_config(text, env)
    [upstream] = config.upstreams
    stream = stream_of(upstream, CHAT)
    assert (config.max_streams, config.admin, config.log.level) == (7, None, "debug")
    assert (upstream.name, upstream.url) == ("42", "http://h:80")
    assert (stream.keepalive, stream.max_chunk, stream.keepalive_blank_line) == (None, 2048, True)
    assert (stream.keepalive_text, stream.error_event, stream.done) == ("42", None, ("[DONE]",))
    assert stream.error_message == "Call ${TEXT} or 42."
    assert upstream.routes[-1].stream is None


def test_a_variable_cannot_bring_yaml_of_its_own() -> None:
    env = {"MESSAGE": '"}, mode: observe, x: {"', "URL": "http://h"}
    [upstream] = config_of({"url": "${URL}", "error_message": "${MESSAGE}"}, env=env).upstreams
    assert stream_of(upstream, CHAT).error_message == env["MESSAGE"]
    assert upstream.mode == "repair"


# ---- layers ----


def test_each_layer_goes_over_the_one_before_key_by_key() -> None:
    first, second = config_of(
        {
            "stall_timeout": "3s",
            "write_timeout": "3s",
            "routes": [{"path": CHAT, "methods": ["POST"], "stream": {"write_timeout": "4s"}}],
        },
        {},
        defaults={"idle_timeout": "2s", "stall_timeout": "2s", "write_timeout": "2s"},
    ).upstreams
    stream = stream_of(first, CHAT)
    assert stream.total_timeout is None  # built in
    assert stream.restore_whitespace is True  # preset
    assert stream.idle_timeout == 2.0  # defaults, over the preset's 300s
    assert stream.stall_timeout == 3.0  # upstream
    assert stream.write_timeout == 4.0  # route
    other = stream_of(second, CHAT)
    assert (other.idle_timeout, other.stall_timeout, other.write_timeout) == (2.0, 2.0, 2.0)


def test_defaults_go_over_what_a_preset_says_of_its_route() -> None:
    [upstream] = config_of({}, defaults={"chunker": "sentence"}).upstreams
    assert stream_of(upstream, AGUI).chunker is Chunker.SENTENCE


def test_the_twin_is_merged_key_by_key_too() -> None:
    route = {"path": CHAT, "stream": {"json": {"omit": []}}}
    [upstream] = config_of({"json": {"path": "/mine"}, "routes": [route]}).upstreams
    assert stream_of(upstream, CHAT).json == JsonSource(
        path="/mine", answer="/naturalLanguageAnswer", meta={"type": "routing"}, omit=()
    )


@pytest.mark.parametrize("methods", [["POST"], None, ["post"]])
def test_a_route_of_the_preset_is_changed_by_the_keys_that_are_named(methods: list[str] | None) -> None:
    route = {"path": CHAT, "stream": {"keepalive": "3s"}, **({"methods": methods} if methods else {})}
    [upstream] = config_of({"routes": [route]}).upstreams
    assert [r.path for r in upstream.routes] == [CHAT, AGUI, "/hubs/*"]
    assert upstream.routes[0].methods == ("POST",)
    plain = config_for_upstream("http://h").upstreams[0].routes[0].stream
    assert plain is not None
    assert upstream.routes[0].stream == plain.model_copy(update={"keepalive": 3.0})


def test_a_route_may_change_the_methods_of_the_presets() -> None:
    [upstream] = config_of({"routes": [{"path": CHAT, "methods": ["GET", "POST"]}]}).upstreams
    assert upstream.routes[0].methods == ("GET", "POST")
    assert len(upstream.routes) == 3
    [upstream] = config_of({"routes": [{"path": CHAT, "methods": ["GET"]}]}).upstreams
    assert [(r.path, r.methods) for r in upstream.routes if r.path == CHAT] == [(CHAT, ("POST",)), (CHAT, ("GET",))]


def test_a_route_of_the_preset_may_be_switched_off_and_on() -> None:
    [upstream] = config_of({"routes": [{"path": CHAT, "stream": False}, {"path": "/hubs/*", "stream": {}}]}).upstreams
    assert upstream.routes[0] == Route(path=CHAT, methods=("POST",), stream=None)
    assert stream_of(upstream, "/hubs/x", "GET").dialect is Dialect.AUTO


def test_a_further_route_starts_from_what_the_preset_says_of_all() -> None:
    [upstream] = config_of({"routes": [{"path": "/other", "stream": {"keepalive": "3s"}}, {"path": "/bare"}]}).upstreams
    chat = stream_of(upstream, CHAT)
    assert stream_of(upstream, "/other") == chat.model_copy(update={"keepalive": 3.0})
    assert stream_of(upstream, "/bare") == chat


def test_a_declared_route_without_preset_is_an_event_stream_by_the_standard() -> None:
    [upstream] = config_of({"preset": "none", "routes": [{"path": "/a", "stream": {}}]}).upstreams
    stream = stream_of(upstream, "/a")
    assert stream == StreamSettings()
    assert (stream.dialect, stream.payload, stream.split, stream.done, stream.require_done) == (
        *("standard", "opaque", "none", ()),
        False,
    )


def test_what_can_be_required_is_required() -> None:
    assert StreamSettings(done=("[DONE]",)).require_done
    assert StreamSettings(payload=Payload.JSON, end_types=("X",)).require_done
    assert not StreamSettings(done=("[DONE]",), require_done=False).require_done


@pytest.mark.parametrize("settings", [{"reader": "ga-client"}, {"split": "line"}, {"source": "json"}])
@pytest.mark.parametrize("layer", ["defaults", "upstream"])
def test_what_only_text_has_leaves_other_routes_alone(settings: dict[str, str], layer: str) -> None:
    where = {"defaults": settings} if layer == "defaults" else {}
    [upstream] = config_of(settings if layer == "upstream" else {}, **where).upstreams
    [(key, value)] = settings.items()
    assert getattr(stream_of(upstream, CHAT), key) == value
    plain = config_for_upstream("http://h").upstreams[0]
    assert stream_of(upstream, AGUI) == stream_of(plain, AGUI)
    assert upstream.undeclared == plain.undeclared


def test_an_upstream_that_is_no_text_leaves_the_defaults_of_text_alone() -> None:
    other = {"preset": "none", "payload": "json", "routes": [{"path": "/a"}]}
    text, json = config_of({}, other, defaults={"split": "line"}).upstreams
    assert stream_of(text, CHAT).split is Split.LINE
    assert stream_of(json, "/a").split is Split.NONE


def test_an_undeclared_stream_takes_clocks_and_messages_only() -> None:
    said = """
      {dialect: lines, payload: text, split: line, done: X, require_done: true, errors: status, reader: ga-client,
       scrub_history: true, strip_double_prefix: true, restore_whitespace: true, keepalive: 1s, keepalive_text: t,
       keepalive_blank_line: false, commit_after: 2s, error_event: e, error_message: m, known_messages: [k],
       cors: ["http://o"], idle_timeout: 3s, stall_timeout: 4s, total_timeout: 5s, write_timeout: 6s, max_event: 1MiB}
    """
    [upstream] = config_of({"preset": "none", **yaml.safe_load(said)}).upstreams
    assert upstream.undeclared == StreamSettings(
        keepalive=1.0,
        keepalive_text="t",
        keepalive_blank_line=False,
        commit_after=2.0,
        error_event="e",
        error_message="m",
        known_messages=("k",),
        cors=("http://o",),
        idle_timeout=3.0,
        stall_timeout=4.0,
        total_timeout=5.0,
        write_timeout=6.0,
        max_event=2**20,
    )


# ---- which upstream, which route ----


def names(config: Config, path: str, host: str = "h") -> str | None:
    upstream = config.upstream_for(path, host)
    return upstream.name if upstream else None


def test_the_longest_path_goes_first_by_whole_segments() -> None:
    config = config_of(
        {"name": "rest"}, {"name": "api", "match": {"path": "/api"}}, {"name": "v1", "match": {"path": "/api/v1/"}}
    )
    assert names(config, "/") == "rest"
    assert names(config, "/apix") == "rest"
    assert names(config, "/API") == "rest"
    assert names(config, "//evil") == "rest"
    assert names(config, "/api") == "api"
    assert names(config, "/api/") == "api"
    assert names(config, "/api/v10") == "api"
    assert names(config, "/api/v1") == "v1"
    assert names(config, "/api/v1/x") == "v1"
    assert names(config, "*") is None


def test_of_equal_paths_the_one_with_the_host_goes_first() -> None:
    config = config_of(
        {"name": "any"},
        {"name": "one", "match": {"host": "one.example"}},
        {"name": "again", "match": {"host": "ONE.example"}},
        {"name": "v6", "match": {"host": "[::1]"}},
        {"name": "path", "match": {"path": "/p", "host": "two.example"}},
    )
    assert names(config, "/", "one.example") == "one"
    assert names(config, "/", "ONE.Example:8080") == "one"
    assert names(config, "/", "one.example.") == "one"
    assert names(config, "/", "[::1]:80") == "v6"
    assert names(config, "/", "[::1]") == "v6"
    assert names(config, "/", "else.example") == "any"
    assert names(config, "/", "") == "any"
    assert names(config, "/p", "two.example") == "path"
    assert names(config, "/p", "one.example") == "one"


def test_of_equals_the_first_wins() -> None:
    assert names(config_of({"name": "a"}, {"name": "b"}), "/") == "a"


def test_a_request_that_nobody_wants() -> None:
    assert names(config_of({"match": {"path": "/a"}}), "/b") is None
    assert names(config_of({"match": {"host": "a"}}), "/", "b") is None


def route_names(upstream: Upstream, method: str, path: str) -> str | None:
    route = upstream.route_for(method, path)
    return f"{','.join(route.methods or ('*',))} {route.path}" if route else None


def test_an_exact_route_goes_before_a_prefix_and_a_long_prefix_before_a_short_one() -> None:
    [upstream] = config_of(
        {
            "preset": "none",
            "routes": [
                {"path": "/*"},
                {"path": "/a/*", "methods": ["POST"]},
                {"path": "/a/b*", "methods": ["POST"]},
                {"path": "/a/b", "methods": ["GET"]},
                {"path": "/a/b", "methods": ["PUT", "DELETE"]},
            ],
        }
    ).upstreams
    assert route_names(upstream, "GET", "/a/b") == "GET /a/b"
    assert route_names(upstream, "DELETE", "/a/b") == "PUT,DELETE /a/b"
    assert route_names(upstream, "POST", "/a/b") == "POST /a/b*"
    assert route_names(upstream, "POST", "/a/bc") == "POST /a/b*"
    assert route_names(upstream, "POST", "/a/c") == "POST /a/*"
    assert route_names(upstream, "POST", "/a/") == "POST /a/*"
    assert route_names(upstream, "POST", "/a") == "* /*"
    assert route_names(upstream, "GET", "/a/c") == "* /*"
    assert route_names(upstream, "post", "/a/c") == "* /*"
    assert route_names(upstream, "POST", "/a%2Fb") == "* /*"


def test_a_route_that_is_not_declared() -> None:
    [upstream] = config_of({}).upstreams
    assert route_names(upstream, "POST", CHAT) == f"POST {CHAT}"
    assert upstream.route_for("GET", CHAT) is None
    assert upstream.route_for("OPTIONS", CHAT) is None
    assert upstream.route_for("POST", CHAT + "/") is None
    assert upstream.route_for("POST", CHAT.upper()) is None
    assert upstream.route_for("POST", "/hubs") is None
    assert route_names(upstream, "GET", "/hubs/chat/negotiate") == "* /hubs/*"


def test_a_route_is_found_by_the_path_that_the_upstream_sees() -> None:
    [upstream] = config_of({"url": "http://h/base", "match": {"path": "/ga/v1"}, "strip_prefix": "/ga/v1/"}).upstreams
    assert route_names(upstream, "POST", "/ga/v1" + CHAT) == f"POST {CHAT}"
    assert upstream.stripped("/ga/v1" + CHAT) == CHAT
    assert upstream.stripped("/ga/v1") == "/"
    assert upstream.stripped("/ga/v10") == "/ga/v10"
    assert upstream.stripped("/ga/v1//x") == "//x"


def test_a_copy_finds_its_own_routes_and_upstreams() -> None:
    config = config_of({})
    [upstream] = config.upstreams
    assert upstream.route_for("POST", CHAT) is not None
    copy = upstream.model_copy(update={"routes": ()})
    assert copy.route_for("POST", CHAT) is None
    assert upstream.route_for("POST", CHAT) is not None
    assert config.upstream_for("/", "h") is upstream
    assert config.model_copy(update={"upstreams": (copy,)}).upstream_for("/", "h") is copy


def test_looking_up_leaves_no_trace() -> None:
    config, again = config_of({}), config_of({})
    upstream = config.upstream_for("/", "h")
    assert upstream is not None
    assert upstream.route_for("POST", CHAT) is not None
    assert config == again
    assert repr(config) == repr(again)
    assert config.model_dump() == again.model_dump()


def test_looking_up_is_fast() -> None:
    routes = [{"path": f"/r{i}", "methods": ["POST"]} for i in range(200)]
    config = config_of(*({"match": {"path": f"/u{i}"}, "preset": "none"} for i in range(20)), {"routes": routes})
    start = time.perf_counter()
    for _ in range(2000):
        upstream = config.upstream_for("/r199", "h")
        assert upstream is not None
        assert upstream.route_for("POST", "/r199") is not None
    assert time.perf_counter() - start < 2.0  # some 10 ms; without tables it would still be seconds


# ---- in code ----


def test_models_take_values_of_the_program() -> None:
    stream = StreamSettings(keepalive=0.05, idle_timeout=None, done=("[DONE]",), payload=Payload.TEXT, max_chunk=2048)
    assert (stream.keepalive, stream.idle_timeout, stream.max_chunk) == (0.05, None, 2048)
    upstream = Upstream(name="a", url="http://h/", routes=(Route(path="/a", stream=stream),), undeclared=stream)
    assert upstream.url == "http://h"
    assert upstream.route_for("PATCH", "/a") == Route(path="/a", methods=None, stream=stream)
    config = Config(listen=Listen(host="::1", port=0), admin=None, upstreams=(upstream,))
    assert config.upstream_for("/a", "x") is upstream


@pytest.mark.parametrize(
    "settings",
    [{"keepalive": 0.0}, {"keepalive": float("nan")}, {"max_chunk": 12}, {"unknown": 1}, {"require_done": True}],
)
def test_models_refuse_what_a_file_may_not_say(settings: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        StreamSettings(**settings)


def test_models_are_frozen() -> None:
    config = config_of({})
    with pytest.raises(ValidationError):
        config.max_streams = 5
    with pytest.raises(ValidationError):
        config.upstreams[0].routes[0].path = "/x"


@pytest.mark.parametrize("preset", PRESETS)
def test_a_configuration_without_a_file(preset: str) -> None:
    config = config_for_upstream("http://h:5232/", preset=preset, listen="127.0.0.1:0", admin="off")
    assert (str(config.listen), config.admin) == ("127.0.0.1:0", None)
    [upstream] = config.upstreams
    assert (upstream.url, upstream.preset) == ("http://h:5232", preset)
    assert upstream.name == ("upstream" if preset == "none" else preset)
    assert str(config_for_upstream("http://h", admin="127.0.0.1:7").admin) == "127.0.0.1:7"
    assert str(config_for_upstream("http://h").admin) == "127.0.0.1:9901"


def test_the_options_of_the_core() -> None:
    sizes = {"max_chunk": "2KiB", "max_event": "4KiB", "max_hold": "100ms"}
    [upstream] = config_of({"reader": "ga-client", **sizes}).upstreams
    stream = stream_of(upstream, CHAT)
    assert stream.options(request_id="r1") == StreamOptions(
        reader=Reader.GA_CLIENT,
        known_messages=("Failed to process message. Please try again.", "Service is busy"),
        request_id="r1",
        max_chunk_bytes=2048,
        max_event_bytes=4096,
        max_hold_s=0.1,
    )


def test_the_defaults_of_the_core_are_those_of_the_gaapi_preset() -> None:
    options = stream_of(config_of({"known_messages": []}).upstreams[0], CHAT).options()
    assert options == StreamOptions()


def test_an_error_event_for_event_source_says_when_to_come_back() -> None:
    assert StreamSettings().options(method="GET").error_retry_ms == 5000
    assert StreamSettings().options(method="POST").error_retry_ms is None
