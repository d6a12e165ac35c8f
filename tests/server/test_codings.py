"""Content codings a host uses although identity was asked for: what came out before a fault is there, memory is not."""

from __future__ import annotations

import gzip
import random
import zlib

import pytest

from sse_proxy.server.disposition import inflate_for
from sse_proxy.server.upstream import ResponseHead
from tests.fakes import ScriptedUpstream, chunk, head, last_chunk
from tests.server.proxied import ask, running

HEADERS = [("Content-Type", "text/event-stream"), ("Transfer-Encoding", "chunked"), ("Content-Encoding", "gzip")]
TEXT = b"data: Hello there. \n\n"


def pieces_of(coding: str, raw: bytes, size: int) -> list[bytes]:
    readable, inflate = inflate_for(ResponseHead(200, "OK", (("Content-Encoding", coding),), "1.1"))
    assert readable
    assert inflate is not None
    out = [piece for at in range(0, len(raw), size) for piece in inflate.pieces(raw[at : at + size])]
    assert inflate.eof
    return out


@pytest.mark.parametrize("size", [1, 7, 100_000])
def test_members_padding_and_both_forms_of_deflate(size: int) -> None:
    rnd = random.Random(size)
    texts = [bytes(rnd.choices(b"ab \n", k=k)) for k in (0, 1, 5000, 0, 30)]
    members = b"".join(map(gzip.compress, texts)) + b"\0\0\0"
    assert b"".join(pieces_of("gzip", members, size)) == b"".join(texts)
    for text in texts:
        whole = zlib.compress(text)
        assert b"".join(pieces_of("deflate", whole, size)) == text
        assert b"".join(pieces_of("deflate", whole[2:-4], size)) == text


def test_a_bomb_comes_in_pieces() -> None:
    pieces = pieces_of("gzip", gzip.compress(bytes(20_000_000)), 65536)
    assert sum(map(len, pieces)) == 20_000_000
    assert max(map(len, pieces)) <= 256 * 1024


@pytest.mark.parametrize("one_read", [True, False])
@pytest.mark.parametrize("end", [b"", b"data: [DONE]\n\n"])
async def test_what_came_before_the_coding_broke_is_there(one_read: bool, end: bytes) -> None:
    member = gzip.compress(TEXT + end)
    body = [chunk(member + b"garbage")] if one_read else [chunk(member), chunk(b"garbage")]
    script = [head(200, headers=HEADERS), *body, last_chunk]
    async with ScriptedUpstream(script) as upstream, running(upstream.url) as proxy:
        answer = await ask(proxy)
    assert answer.text == "Hello there. "
    if end:
        assert (answer.done, answer.errors) == (1, [])
    else:
        assert answer.error["code"] == "upstream_truncated"
