"""SIGHUP: the new file is taken, a bad one refused, and what runs goes on as it began."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from tests.fakes import Script, ScriptedUpstream, Wait, chunk, eventually, head, last_chunk, stream_head
from tests.server.front import Client
from tests.server.process import Served, served, write
from tests.server.proxied import ask, make_config, post, running

DONE = chunk(b"data: [DONE]\n\n")


def says(word: str) -> Script:
    return [stream_head(), chunk(f"data: {word}\n\n".encode()), DONE, last_chunk]


async def question(server: Served) -> bytes:
    async with Client.open(server.port, post()) as client:
        return await client.rest()


async def test_sighup_takes_a_good_file_and_refuses_a_bad_one(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    async with (
        ScriptedUpstream(says("one")) as one,
        ScriptedUpstream(says("two")) as two,
        served(path, one.url) as server,
    ):
        assert b"data: one\n\n" in await question(server)
        write(path, two.url, server.port, server.admin)
        server.signal(signal.SIGHUP)
        await eventually(lambda: "reloaded" in server.log)
        assert b"data: two\n\n" in await question(server)
        path.write_text(path.read_text().replace('"upstreams"', '"upstream"'))
        server.signal(signal.SIGHUP)
        await eventually(lambda: "reload refused" in server.log)
        assert b"data: two\n\n" in await question(server)
        path.unlink()
        server.signal(signal.SIGHUP)
        await eventually(lambda: server.log.count("reload refused") >= 2)
        assert b"data: two\n\n" in await question(server)
        write(path, one.url, server.port, server.admin + 1)
        server.signal(signal.SIGHUP)
        await eventually(lambda: "at a restart only: admin" in server.log)
        assert b"data: one\n\n" in await question(server)
        reloads = server.log.count("INFO reloaded")
        write(path, one.url, server.port, server.admin)  # back to what the listeners were opened by
        server.signal(signal.SIGHUP)
        await eventually(lambda: server.log.count("INFO reloaded") > reloads)
        assert await server.readyz() == 200
        server.signal(signal.SIGTERM)
        assert await server.exit() == 0
    assert "Traceback" not in server.log
    assert "Unclosed" not in server.log
    assert "upstreams" in next(line for line in server.lines if "reload refused" in line)


async def test_a_running_stream_keeps_its_settings_and_its_upstream() -> None:
    go = asyncio.Event()
    async with (
        ScriptedUpstream([stream_head(), Wait(go), *says("old")[1:]]) as old,
        ScriptedUpstream(says("new")) as new,
        running(old.url) as proxy,
        Client.open(proxy.port, post()) as client,
    ):
        await client.until(b"keep-alive")
        await proxy.proxy.reload(make_config(new.url))
        assert (await ask(proxy)).text == "new"
        go.set()
        assert b"data: old" in await client.rest()


async def test_a_plain_request_that_runs_is_finished_by_the_old_client() -> None:
    go = asyncio.Event()
    async with (
        ScriptedUpstream([Wait(go), head(200, length=2), b"ok"]) as upstream,
        running(upstream.url) as proxy,
        Client.open(proxy.port, post("/x")) as client,
    ):
        await upstream.request()
        old = proxy.proxy._places["host"]
        await proxy.proxy.reload(make_config(upstream.url))
        assert not old.plain._own.closed
        go.set()
        assert (await client.rest()).endswith(b"ok")
        await eventually(lambda: old.plain._own.closed)


async def test_limits_are_taken_over_and_streams_that_run_are_counted_on() -> None:
    go = asyncio.Event()
    script: Script = [stream_head(), Wait(go), DONE, last_chunk]
    async with ScriptedUpstream(script) as upstream, running(upstream.url) as proxy:
        async with Client.open(proxy.port, post()) as client:
            await client.until(b"keep-alive")
            await proxy.proxy.reload(make_config(upstream.url, top={"max_streams": 1, "capture": {"keep": 2}}))
            assert (await ask(proxy)).status == 503
            go.set()
            await client.rest()
        assert (await ask(proxy)).status == 200
        assert (await proxy.last()).recorder is not None


@pytest.mark.parametrize("what", ["transcript", "ca_file"])
async def test_a_file_that_cannot_be_read_leaves_the_old_configuration(what: str, tmp_path: Path) -> None:
    """The warnings of a client that nobody closed are errors here."""
    async with ScriptedUpstream(says("one")) as upstream, running(upstream.url) as proxy:
        before = proxy.proxy.config
        good = tmp_path / "file"
        good.write_text("")
        if what == "transcript":
            config = make_config(upstream.url, top={"transcript": str(good)})
            good.unlink()
            good.mkdir()
        else:
            config = make_config("https://localhost:1", tls={"ca_file": str(good)})
        with pytest.raises(OSError):  # noqa: PT011
            await proxy.proxy.reload(config)
        assert proxy.proxy.config is before
        assert (await ask(proxy)).text == "one"


async def test_the_transcript_goes_on_in_the_same_file(tmp_path: Path) -> None:
    path = tmp_path / "t"
    async with (
        ScriptedUpstream(says("one")) as upstream,
        running(make_config(upstream.url, top={"transcript": str(path)})) as proxy,
    ):
        for _ in range(3):
            await ask(proxy)
            await proxy.proxy.reload(make_config(upstream.url, top={"transcript": str(path)}))
        await proxy.last()
    assert path.read_text().count("\n") == 3
