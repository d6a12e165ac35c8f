"""The legacy host's routes, as the real hosts answer them."""

import asyncio
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from sse_proxy.demo import host as host_module
from sse_proxy.demo.host import LegacyHost
from sse_proxy.demo.library import ANSWERS, answer_for
from sse_proxy.demo.reader import parse_events
from tests.fakes import eventually, free_port, parse_response, raw_request

ROOT = Path(__file__).parents[2]
WIRE = ROOT / "tests" / "vectors" / "wire"
READER_JS = ROOT / "sse_proxy" / "server" / "inspector" / "reader.js"
STREAM = "/api/chatbot/chat/stream"
TWIN = "/api/chatbot/chat"
AGUI = "/api/chatbot/agui/stream"


class Reply:
    """One whole response; header names in lower case."""

    def __init__(self, raw: bytes, head_only: bool) -> None:
        self.status, self.fields, self.body, complete = parse_response(raw, head_only=head_only)
        assert complete
        self.headers = {name.lower(): value for name, value in self.fields}

    @property
    def json(self) -> Any:
        return json.loads(self.body)


async def ask(
    port: int, target: str, body: object = None, *, method: str | None = None, headers: str = "", raw: bytes = b""
) -> Reply:
    data = raw if body is None else json.dumps(body).encode()
    method = method or ("POST" if data else "GET")
    head = f"{method} {target} HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: {len(data)}\r\n{headers}\r\n"
    return Reply(await raw_request(port, head.encode() + data), method == "HEAD")


@pytest.mark.parametrize("base", ["", "/chatbot"])
@pytest.mark.parametrize("host", ["gaapi", "gachatbot"])
@pytest.mark.parametrize("chunks", ["743", "a826864"])
@pytest.mark.parametrize("name", [path.name.removesuffix(".answer.txt") for path in sorted(WIRE.glob("*.answer.txt"))])
async def test_the_stream_of_every_wire_file(port: int, base: str, host: str, chunks: str, name: str) -> None:
    question = next(answer.example for answer in ANSWERS if answer.name == name)
    target = f"{base}{STREAM}?host={host}&chunks={chunks}"
    reply = await ask(port, target, {"message": question, "conversationHistory": [], "useSemanticSearch": True})
    assert reply.body == (WIRE / f"{name}.{chunks}.{host}.sse").read_bytes()
    assert reply.headers.get("x-accel-buffering") == ("no" if host == "gachatbot" else None)
    assert reply.headers["content-type"] == "text/event-stream"
    assert reply.headers["transfer-encoding"] == "chunked"


async def test_the_path_base_is_gachatbots(port: int) -> None:
    reply = await ask(port, "/chatbot" + STREAM, {"message": "Show me Cmaj7 voicings"})
    assert reply.body == (WIRE / "voicings.743.gachatbot.sse").read_bytes()
    assert (await ask(port, "/chatbot/api/chatbot/status")).json["host"] == "gachatbot"
    assert (await ask(port, "/chatbots/api/chatbot/status")).status == 404


async def test_the_session_cookie(port: int) -> None:
    reply = await ask(port, STREAM, {"message": "hi"})
    assert re.fullmatch(r"ga_chat_session=[0-9a-f]{32}; path=/api/chatbot;.*", reply.headers["set-cookie"])
    known = await ask(port, STREAM, {"message": "hi"}, headers="Cookie: a=b; ga_chat_session=1\r\n")
    assert "set-cookie" not in known.headers
    assert "set-cookie" in (await ask(port, TWIN, {"message": "hi"})).headers


@pytest.mark.parametrize("body", [{"message": ""}, {"message": " \n"}, {"message": None}, {}])
async def test_an_empty_message(port: int, body: dict[str, Any]) -> None:
    reply = await ask(port, STREAM, body)
    assert (reply.status, reply.body) == (400, b'data: {"error":"Message cannot be empty."}\n\n')
    assert "content-type" not in reply.headers
    twin = await ask(port, TWIN, body)
    assert (twin.status, twin.json) == (400, {"error": "Message cannot be empty."})
    assert (await ask(port, AGUI, body)).status == 400


@pytest.mark.parametrize("target", [STREAM, TWIN, AGUI])
@pytest.mark.parametrize("raw", [b"{", b"[]", b"null", b"\xff", b"[" * 100_000, b'"a"'])
async def test_a_body_that_is_no_json_object(port: int, target: str, raw: bytes) -> None:
    reply = await ask(port, target, raw=raw)
    assert reply.status == 400
    assert reply.headers["content-type"] == "application/problem+json"
    assert "JSON" in reply.json["detail"]


async def test_a_message_that_is_no_string(port: int) -> None:
    assert (await ask(port, STREAM, {"message": 7})).status == 400
    assert (await ask(port, TWIN, {"message": ["a"]})).status == 400


@pytest.mark.parametrize("target", [STREAM, TWIN, AGUI])
async def test_unknown_knobs_name_the_allowed_ones(port: int, target: str) -> None:
    reply = await ask(port, target + "?fail=bogus", {"message": "hi"})
    assert reply.status == 400
    assert "fail='bogus': allowed are none, 500, 503" in reply.json["detail"]


async def test_the_json_twin(port: int) -> None:
    reply = await ask(port, TWIN + "?delay=20", {"message": "which arpeggio, from a windows host"})
    assert list(reply.json) == [
        "naturalLanguageAnswer",
        "agentId",
        "confidence",
        "routingMethod",
        "grounding",
        "elapsedMs",
        "traceId",
        "trace",
    ]
    assert reply.json["naturalLanguageAnswer"] == answer_for("windows").text
    assert reply.json["elapsedMs"] == 23
    stream = await ask(port, STREAM, {"message": "which arpeggio, from a windows host"})
    routing = json.loads(parse_events(stream.body)[0][1])
    assert routing.pop("type") == "routing"
    assert routing == {key: reply.json[key] for key in routing}


@pytest.mark.parametrize(("fail", "status"), [("503", 503), ("500", 500), ("json-error", 200), ("html", 200)])
async def test_the_json_twin_fails(port: int, fail: str, status: int) -> None:
    reply = await ask(port, f"{TWIN}?fail={fail}", {"message": "hi"})
    assert reply.status == status
    assert b"naturalLanguageAnswer" not in reply.body
    if fail in {"503", "json-error"}:
        assert list(reply.json) == ["error"]


async def test_the_twin_is_silent_until_its_answer_is_computed(port: int) -> None:
    head = f"POST {TWIN}?delay=60000 HTTP/1.1\r\nHost: h\r\nContent-Length: 16\r\n\r\n"
    with pytest.raises(TimeoutError):
        await raw_request(port, head.encode() + b'{"message":"hi"}', until_close=False, timeout=0.1)


async def test_the_agui_stream(port: int) -> None:
    body = {"threadId": "t7", "runId": "r7", "messages": [{"role": "user", "content": "Show me Cmaj7 voicings"}]}
    events = [json.loads(data) for _, data in parse_events((await ask(port, AGUI, body)).body)]
    assert events[0] == {"type": "RUN_STARTED", "threadId": "t7", "runId": "r7"}
    assert events[-1] == {"type": "RUN_FINISHED", "threadId": "t7", "runId": "r7"}
    text = "".join(event["delta"] for event in events if event["type"] == "TEXT_MESSAGE_CONTENT")
    assert text == answer_for("voicings").text


async def test_the_agui_stream_fails(port: int) -> None:
    body = {"message": "a practice plan"}
    failed = parse_events((await ask(port, AGUI + "?fail=error", body)).body)
    assert [json.loads(data)["type"] for _, data in failed][-1] == "RUN_ERROR"
    assert "RUN_FINISHED" not in json.dumps(failed)
    ended = parse_events((await ask(port, AGUI + "?fail=eof", body)).body)
    assert "RUN_FINISHED" not in json.dumps(ended)
    after = parse_events((await ask(port, AGUI + "?fail=after-marker", body)).body)
    assert json.loads(after[-1][1])["type"] != "RUN_FINISHED"


@pytest.mark.parametrize("path", ["/api/chatbot/status", "/api/chatbot/examples", "/api/chatbot/skills", "/demo/info"])
async def test_plain_json_routes(port: int, path: str) -> None:
    reply = await ask(port, path)
    assert (reply.status, reply.headers["content-type"]) == (200, "application/json; charset=utf-8")
    assert reply.json
    head = await ask(port, path, method="HEAD")
    assert (head.status, head.body) == (200, b"")
    assert head.headers["content-length"] == str(len(reply.body))


async def test_what_the_page_needs_to_know(legacy_host: LegacyHost, port: int) -> None:
    info = (await ask(port, "/demo/info")).json
    assert info["direct"] == legacy_host.url == f"http://127.0.0.1:{port}"
    assert (info["hosts"], info["chunks"]) == (["gaapi", "gachatbot"], ["743", "a826864"])
    for fail in info["fails"]:
        assert fail["about"]
        assert re.fullmatch("[a-z0-9-]+", fail["kind"])


async def test_the_page_stands_alone(port: int) -> None:
    reply = await ask(port, "/")
    page = reply.body.decode()
    assert reply.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in reply.headers["content-security-policy"]
    assert not re.search(r"""(src|href)=["'](?!data:)|url\(|@import|\bimport\(""", page)
    assert re.findall(r"""\bfrom ["'](.*?)["']""", page) == ["./demo/reader.js"]
    assert "script-src 'self'" in reply.headers["content-security-policy"]
    ids = set(re.findall(r'\bid="([^"]+)"', page))
    wanted = set(re.findall(r'\$\("([^"]+)"\)|(?:for|aria-labelledby)="([^"]+)"|new Pane\("([^"]+)"\)', page))
    assert {name for names in wanted for name in names if name} <= ids
    # Every list of choices is a knob of the host.
    assert set(re.findall('<select id="([^"]+)"', page)) == {"host", "chunks", "fail", "delay", "pace"}
    # Every field has a label.
    assert set(re.findall(r'<(?:input|select) id="([^"]+)"', page)) == set(re.findall(r'<label for="([^"]+)"', page))


@pytest.mark.parametrize("base", ["", "/chatbot"])
async def test_the_reader_module_is_the_shipped_one(port: int, base: str) -> None:
    reply = await ask(port, f"{base}/demo/reader.js")
    assert (reply.status, reply.headers["content-type"]) == (200, "text/javascript; charset=utf-8")
    assert reply.body == READER_JS.read_bytes()
    assert {"export class ChatError", "export class ChatTruncatedError", "export async function readAnswer"} <= {
        line.partition(" extends")[0].partition("(")[0] for line in reply.body.decode().splitlines()
    }


SERVE_THE_READER = r"""
import asyncio, sys
from sse_proxy.demo.host import LegacyHost
from tests.fakes import raw_request

async def main():
    host = LegacyHost()
    port = await host.start()
    head = await raw_request(port, b"GET /demo/reader.js HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
    await host.stop()
    assert head.startswith(b"HTTP/1.1 200 ")

asyncio.run(main())
print([name for name in sys.modules if name.startswith("sse_proxy.server")])
"""


async def test_serving_the_reader_module_imports_nothing_of_the_server() -> None:
    python = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", SERVE_THE_READER), cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await asyncio.wait_for(python.communicate(), 30)
    assert (python.returncode, out) == (0, b"[]\n")


@pytest.mark.parametrize("path", ["/nothing", "/api/chatbot", "/demo/info/", "/%2e%2e/etc/passwd", "//evil"])
async def test_unknown_paths(port: int, path: str) -> None:
    reply = await ask(port, path)
    assert (reply.status, reply.headers["content-type"]) == (404, "application/problem+json")


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("GET", STREAM, "POST, OPTIONS"),
        ("HEAD", STREAM, "POST, OPTIONS"),
        ("PUT", TWIN, "POST, OPTIONS"),
        ("POST", "/", "GET, HEAD, OPTIONS"),
        ("DELETE", "/api/chatbot/status", "GET, HEAD, OPTIONS"),
    ],
)
async def test_wrong_methods(port: int, method: str, path: str, allow: str) -> None:
    reply = await ask(port, path, method=method)
    assert (reply.status, reply.headers["allow"]) == (405, allow)


async def test_a_page_of_another_origin_may_read_everything(port: int) -> None:
    origin = "Origin: http://127.0.0.1:8080\r\n"
    for target in (STREAM, STREAM + "?fail=500", STREAM + "?fail=bogus", TWIN, "/nothing"):
        reply = await ask(port, target, {"message": "hi"}, headers=origin)
        assert reply.headers["access-control-allow-origin"] == "http://127.0.0.1:8080"
        assert reply.headers["vary"] == "Origin"
    assert "access-control-allow-origin" not in (await ask(port, STREAM, {"message": "hi"})).headers


async def test_a_preflight(port: int) -> None:
    asked = (
        "Origin: http://a\r\nAccess-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: content-type\r\n"
    )
    asked += "Access-Control-Request-Private-Network: true\r\n"
    reply = await ask(port, STREAM, method="OPTIONS", headers=asked)
    assert (reply.status, reply.body) == (204, b"")
    assert reply.headers["access-control-allow-origin"] == "http://a"
    assert "POST" in reply.headers["access-control-allow-methods"]
    assert reply.headers["access-control-allow-headers"] == "content-type"
    assert reply.headers["access-control-allow-private-network"] == "true"
    plain = await ask(port, STREAM, method="OPTIONS")
    assert plain.status == 204
    assert not [name for name in plain.headers if name.startswith("access-control")]


async def test_exchanges_are_recorded(legacy_host: LegacyHost, port: int) -> None:
    await ask(port, TWIN + "?host=gaapi", {"message": "hi"}, headers="X-A: 1\r\n")
    (exchange,) = legacy_host.exchanges
    assert exchange.request.target == TWIN + "?host=gaapi"
    assert exchange.request.header("x-a") == "1"
    assert json.loads(exchange.request.body) == {"message": "hi"}
    await eventually(lambda: exchange.outcome == "done")


async def test_a_fault_of_the_host_ends_the_connection_alone(
    legacy_host: LegacyHost, port: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_: str) -> object:
        raise ZeroDivisionError

    monkeypatch.setattr(host_module, "answer_for", broken)
    head = f"POST {TWIN} HTTP/1.1\r\nHost: h\r\nContent-Length: 16\r\n\r\n"
    assert await raw_request(port, head.encode() + b'{"message":"hi"}') == b""
    assert "the demo host failed on POST" in caplog.text
    assert (await ask(port, "/api/chatbot/status")).status == 200


async def test_stop_ends_every_connection() -> None:
    host = LegacyHost()
    port = await host.start()
    body = b'{"message":"hi"}'
    head = f"POST {STREAM}?fail=stall HTTP/1.1\r\nHost: h\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    clients = [asyncio.create_task(raw_request(port, data)) for data in (head + body, head, b"", b"GET /")]
    await eventually(lambda: host.open_connections == 4)
    await eventually(lambda: len(host.exchanges) == 1)
    async with asyncio.timeout(5):
        await host.stop()
        await asyncio.gather(*clients)
    assert (host.open_connections, host.url) == (0, "")
    assert [exchange.outcome for exchange in host.exchanges] == ["client gone"]
    await host.stop()  # a second time does nothing
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)


async def test_start_on_a_given_port_and_again() -> None:
    host = LegacyHost()
    port = free_port()
    assert await host.start(port=port) == port
    with pytest.raises(RuntimeError, match="running already"):
        await host.start()
    other = LegacyHost()
    with pytest.raises(OSError, match="in use"):
        await other.start(port=port)
    await host.stop()
    assert await host.start(port=port) == port
    assert (await ask(port, "/api/chatbot/status")).status == 200
    await host.stop()
