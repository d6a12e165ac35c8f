"""A page of another origin can read the heads and errors that are our own."""

from __future__ import annotations

from typing import Any

import pytest

from sse_proxy.server.cors import CorsMemory, cors_headers
from tests.fakes import End, Request, Script, ScriptedUpstream, Stall, chunk, head, last_chunk, stream_head
from tests.server.front import Client
from tests.server.proxied import CHAT, ask, post, running

PAGE = "https://page.example"
ALLOW = [
    ("Access-Control-Allow-Origin", PAGE),
    ("Access-Control-Allow-Credentials", "true"),
    ("Vary", "Origin"),
]
DONE = chunk(b"data: [DONE]\n\n")


def cors(headers: list[tuple[str, str]]) -> list[tuple[str, str]]:
    return [pair for pair in headers if pair[0].lower().startswith("access-control-") or pair[0].lower() == "vary"]


def from_page(origin: str = PAGE) -> bytes:
    return post(CHAT, b"{}", f"Origin: {origin}")


def first_good_then(script: Script) -> Any:
    def play(request: Request) -> Script:
        good = [*ALLOW] if request.get("Origin") == PAGE else []
        return script if request.get("X-Now") else [stream_head(good), DONE, last_chunk]

    return play


@pytest.mark.parametrize("script", [[End()], [head(500, length=0)], [head(503, [("Vary", "Accept")], length=0)]])
@pytest.mark.parametrize("errors", ["event", "status"])
async def test_an_error_repeats_what_the_upstream_last_answered(script: Script, errors: str) -> None:
    async with ScriptedUpstream(first_good_then(script)) as upstream, running(upstream.url, errors=errors) as proxy:
        assert cors((await ask(proxy, from_page())).headers) == ALLOW
        failed = await ask(proxy, post(CHAT, b"{}", f"Origin: {PAGE}", "X-Now: 1"))
        assert failed.errors
        assert cors(failed.headers) == ALLOW
        again = await ask(proxy, post(CHAT, b"{}", f"Origin: {PAGE}", "X-Now: 1"))
        assert cors(again.headers) == ALLOW
        other = await ask(proxy, post(CHAT, b"{}", "Origin: https://other.example", "X-Now: 1"))
        assert cors(other.headers) == []
        none = await ask(proxy, post(CHAT, b"{}", "X-Now: 1"))
        assert cors(none.headers) == []


async def test_an_early_head_has_them() -> None:
    async with (
        ScriptedUpstream(first_good_then([Stall()])) as upstream,
        running(upstream.url, commit_after="50ms") as proxy,
    ):
        await ask(proxy, from_page())
        async with Client.open(proxy.port, post(CHAT, b"{}", f"Origin: {PAGE}", "X-Now: 1")) as client:
            head_bytes = await client.until(b"\r\n\r\n")
    assert f"Access-Control-Allow-Origin: {PAGE}\r\n".encode() in head_bytes


async def test_a_503_of_admission_has_them() -> None:
    async with ScriptedUpstream(first_good_then([End()])) as upstream, running(upstream.url) as proxy:
        await ask(proxy, from_page())
        proxy.proxy.services.admission.drain()
        refused = await ask(proxy, from_page())
    assert refused.status == 503
    assert cors(refused.headers) == ALLOW


@pytest.mark.parametrize("script", [[stream_head([("Access-Control-Allow-Origin", "x")]), DONE, last_chunk], [End()]])
async def test_a_list_of_origins_is_ours_alone(script: Script) -> None:
    async with ScriptedUpstream(script) as upstream, running(upstream.url, cors=[PAGE]) as proxy:
        page = await ask(proxy, from_page())
        other = await ask(proxy, from_page("https://evil.example"))
    assert cors(page.headers) == ALLOW
    assert cors(other.headers) == [("Vary", "Origin")]


async def test_a_star_allows_everybody_without_credentials() -> None:
    async with ScriptedUpstream([End()]) as upstream, running(upstream.url, cors=["*"]) as proxy:
        assert cors((await ask(proxy, from_page())).headers) == [
            ("Access-Control-Allow-Origin", "*"),
            ("Vary", "Origin"),
        ]


async def test_off_says_nothing() -> None:
    async with ScriptedUpstream(first_good_then([End()])) as upstream, running(upstream.url, cors=False) as proxy:
        assert cors((await ask(proxy, from_page())).headers) == ALLOW  # the upstream's own still pass
        assert cors((await ask(proxy, post(CHAT, b"{}", f"Origin: {PAGE}", "X-Now: 1"))).headers) == []


def test_the_memory_is_bounded_and_forgets_the_oldest() -> None:
    memory = CorsMemory("upstream")
    for n in range(1000):
        memory.learn(f"https://{n}.example", 200, [("Access-Control-Allow-Origin", str(n))])
    assert memory.own("https://0.example") == []
    assert memory.own("https://999.example") == [("Access-Control-Allow-Origin", "999")]


def test_what_the_upstream_takes_back_is_taken_back() -> None:
    memory = CorsMemory("upstream")
    memory.learn(PAGE, 200, ALLOW)
    memory.learn(PAGE, 502, [])  # an error page that lost its headers says nothing
    assert memory.own(PAGE) == ALLOW
    memory.learn(PAGE, 403, [])
    assert memory.own(PAGE) == []


def test_only_what_is_about_origins_is_kept() -> None:
    sent = [("Set-Cookie", "a"), ("Vary", "Accept"), ("Vary", "Origin"), ("access-control-expose-headers", "x")]
    assert cors_headers(sent) == [("access-control-expose-headers", "x"), ("Vary", "Origin")]
    assert cors_headers([("Vary", "Origin")]) == []
