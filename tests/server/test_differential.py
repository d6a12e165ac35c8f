"""The same raw requests straight to an upstream, through nginx, and through the proxy: what differs, and why.

Every difference between the straight way and ours must stand in `ACCEPTED` (of a kind that any request may show) or in
`REFUSED` (a request that we do not pass on at all), each with its reason; and every line there must be seen, so that
the tables cannot outlive what they describe. nginx (`proxy_pass` with its defaults off) shows what people are used to:
what it changes is computed the same way, and `NGINX` names it.
"""

from __future__ import annotations

import asyncio
import random
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.fakes import chunk, free_port, last_chunk, parse_response, raw_request
from tests.server.front import proxy

NGINX_BINARY = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")

# --- the tables ---------------------------------------------------------------------------------------------------

# Kinds of differences between the straight way and the way through the proxy: pattern -> reason.
ACCEPTED = {
    r"request \+(x-forwarded-(for|proto|host)|forwarded)": "who asked, told once (design section 7)",
    r"request -(x-forwarded-for|x-forwarded-proto|x-forwarded-host|forwarded|x-forwarded-prefix)": (
        "what an untrusted peer says of itself is replaced or removed"
    ),
    r"request -expect": "100-continue is answered here, and not waited for a second time upstream",
    r"request -named": "a header that Connection names is for this hop only (RFC 9110 7.6.1)",
    r"request version": "the upstream is spoken to in HTTP/1.1, whatever the client speaks",
    r"request target": "of an absolute-form target path and query go on: the authority is not the client's to choose",
    r"request host": "the authority of an absolute-form target counts, not Host (RFC 9112 3.2.2)",
    r"answer -date": "none: an upstream without a clock stays without one",
    r"answer version": "we answer in HTTP/1.1, whatever the upstream speaks",
    r"answer -content-length": "a 204 has no body, and one that claims to have would be waited for",
    r"answer -trailer": "fields behind a chunked body are not passed on, and so not announced",
}

# Requests that never reach the upstream: case -> (status, reason).
REFUSED = {
    "raw utf-8 in the target": (400, "raw non-ASCII bytes in a target (design section 7)"),
    "raw latin-1 in the target": (400, "raw non-ASCII bytes in a target (design section 7)"),
    "a fragment in the target": (400, "a fragment is never sent (RFC 9112 3.2)"),
    "an unknown method": (400, "aiohttp's parser knows the registered methods only"),
    "a lower-case method": (400, "methods are case-sensitive, and none is lower-case"),
    "two user agents": (400, "aiohttp's parser refuses a second value of a header that has but one"),
    "two content types": (400, "aiohttp's parser refuses a second value of a header that has but one"),
    "a folded header": (400, "obsolete line folding (RFC 9112 5.2)"),
    "bare line feeds": (400, "lines end in CRLF; two readers could cut such a head in two ways"),
    "a space before the colon": (400, "RFC 9112 5.1 demands it: it is a way to smuggle"),
    "a control character in a value": (400, "RFC 9110 5.5"),
    "another transfer coding": (501, "RFC 9112 6.1: a coding we do not speak"),
    "chunked from a 1.0 client": (400, "RFC 9112 6.1: faulty framing"),
    "both framings": (400, "request smuggling (RFC 9112 6.3)"),
    "two lengths": (400, "request smuggling (RFC 9112 6.3)"),
    "no host": (400, "RFC 9112 3.2 demands it"),
    "a host that is none": (400, "it goes into headers that others build links from"),
    "another expectation": (417, "RFC 9110 10.1.1"),
    "CONNECT": (405, "no tunnels"),
    "a head of 70 KB": (431, "max_header"),
    "answered with both framings": (502, "response splitting (RFC 9112 6.3)"),
    "answered with two lengths": (502, "response splitting (RFC 9112 6.3)"),
    "answered with another transfer coding": (502, "a coding that was not asked for, and cannot be passed on"),
    "answered with a control character": (502, "RFC 9110 5.5"),
    "answered with more than its length": (502, "where the next answer begins is not certain; aiohttp drops it all"),
}

# What nginx changes of the same requests; kept short of details, as it is here to compare with only.
NGINX = (
    r"request (version|target|host|order|case|-expect|-named|[-+](connection|content-length))",
    r"answer (version|order|case|reason|[-+](content-length|accept-ranges|date|server|trailer|connection|etag))",
    r"answer status \d+ -> \d+",
    r"not reached",
    r"answer body",
    r"request -(x-under_score|content-length)",
)

# --- cases --------------------------------------------------------------------------------------------------------


@dataclass
class Case:
    """One raw request, and the raw answer it gets.

    Attributes:
        reads_body: the answer has a body as far as its reader knows (False for HEAD).
    """

    name: str
    request: bytes
    answer: bytes
    seen: dict[str, list[Seen]] = field(default_factory=dict)


@dataclass
class Seen:
    """A request as the upstream saw it."""

    method: bytes
    target: bytes
    version: bytes
    headers: list[tuple[bytes, bytes]]
    body: bytes


METHODS = ["GET", "GET", "GET", "POST", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "PROPFIND", "REPORT"]
TARGETS = [
    "/", "/?", "/a", "/a/", "/a//b", "//a", "///", "/a/./b", "/a/../b", "/..", "/%2e%2e/", "/a%2Fb/%7Eu/%41", "/%",
    "/%zz", "/a;p=1;q", "/a?b", "/a?b=c&b=d", "/a?b?c", "/?%25s3&t=100%25", "/%E4%BD%A0", "/a+b?c+d", "/~u", "/\\a",
    "/a\\b", "/a|b", "/a'b\"c", "/<x>", "/{id}", "/a^b`c", "/@evil", "/:80", "/http://evil/", "/a%00b", "/a%0d%0ab",
    "/*", "/?=&&=", "/index.html", "/a.b-c_d!$&'()*+,=", "/hubs/chat?id=Zx_-1",
]  # fmt: skip
NAMES = ["Accept", "accept-language", "X-A", "x-a", "X-B", "COOKIE", "Cookie", "Authorization", "If-None-Match", "Range",
         "Cache-Control", "Origin", "Referer", "x-under_score", "X.Dotted", "Last-Event-ID", "DNT", "Accept-Encoding"]  # fmt: skip
VALUES = ["", "a", "a, b", "a;q=0.5, */*", '"quoted, and ; more"', "caf\xe9", "\xff", "x" * 300, "a  b", "a=1; b=2", "*",
          "Basic dTpw", "bytes=0-1", "<>\\|^`{}", "W/\"x\"", "a\tb", "\xe4\xbd\xa0"]  # fmt: skip
STATUSES = [(200, "OK"), (200, "Fine Thing"), (201, "Created"), (202, ""), (203, "X"), (206, "Partial Content"),
            (299, "Odd"), (301, "Moved"), (302, "Found"), (307, "There"), (400, "Bad"), (401, "Who"), (403, "No"),
            (404, "Not Found"), (409, "Conflict"), (418, "Teapot"), (422, "Hm"), (429, "Slow"), (500, "Oh"), (503, "Busy"),
            (599, "Odd")]  # fmt: skip
ANSWERS = [("Set-Cookie", "a=1; Path=/"), ("Set-Cookie", "b=2; Expires=Wed, 21 Oct 2026 07:28:00 GMT"), ("ETag", '"v1"'),
           ("Server", "Kestrel"), ("Date", "Wed, 21 Oct 2015 07:28:00 GMT"), ("Content-Type", "text/html; charset=utf-8"),
           ("Content-Disposition", 'attachment; filename="caf\xe9.pdf"'), ("Location", "http://legacy/%2f"), ("X-A", "1"),
           ("x-a", "2"), ("Vary", "Origin"), ("Access-Control-Allow-Origin", "*"), ("Content-Encoding", "br"),
           ("Cache-Control", "no-store"), ("WWW-Authenticate", 'Basic realm="x", Bearer'), ("Link", "</x>; rel=next"),
           ("Content-Range", "bytes 0-1/10"), ("X-Empty", ""), ("Retry-After", "3"), ("Last-Modified", "now")]  # fmt: skip


def request(
    target: str = "/a",
    *lines: str,
    method: str = "GET",
    version: str = "1.1",
    host: str | None = "shop",
    body: bytes = b"",
) -> bytes:
    top = [f"{method} {target} HTTP/{version}", *([f"Host: {host}"] if host is not None else []), *lines, "", ""]
    return "\r\n".join(top).encode("latin-1") + body


def answer(*lines: str, first: str = "HTTP/1.1 200 OK", body: bytes = b"hello", length: bool = True) -> bytes:
    top = [first, *lines, *([f"Content-Length: {len(body)}"] if length else []), "Connection: close", "", ""]
    return "\r\n".join(top).encode("latin-1") + body


def generated(count: int, seed: int = 5) -> list[Case]:
    """Make requests and answers from pieces; the same ones every time."""
    pick = random.Random(seed)
    cases = []
    for number in range(count):
        method = pick.choice(METHODS)
        lines = [f"{pick.choice(NAMES)}: {pick.choice(VALUES)}" for _ in range(pick.randrange(7))]
        body = pick.randbytes(pick.choice([0, 1, 10, 1000, 70_000]))
        framing = pick.choice(["none", "length", "chunked"]) if method not in ("GET", "HEAD", "OPTIONS") else "none"
        sent = b""
        if framing == "length":
            lines.insert(pick.randrange(len(lines) + 1), f"Content-Length: {len(body)}")
            sent = body
        elif framing == "chunked":
            lines.append("Transfer-Encoding: chunked")
            cuts = sorted(pick.randrange(len(body) + 1) for _ in range(3))
            parts = [body[a:b] for a, b in zip([0, *cuts], [*cuts, len(body)], strict=True)]
            sent = b"".join(chunk(part) for part in parts if part) + last_chunk
        status, reason = pick.choice(STATUSES)
        back = pick.randbytes(pick.choice([0, 1, 500, 100_000])) if method != "HEAD" else b""
        headers = [f"{name}: {value}" for name, value in pick.sample(ANSWERS, pick.randrange(8))]
        kind = pick.choice(["length", "chunked", "close"])
        if kind == "chunked":
            headers.append("Transfer-Encoding: chunked")
            back = b"" if method == "HEAD" else chunk(back or b"x") + last_chunk
        first = f"HTTP/1.1 {status} {reason}"
        got = answer(*headers, first=first, body=back, length=kind == "length")
        cases.append(Case(f"generated {number}", request(pick.choice(TARGETS), *lines, method=method, body=sent), got))
    return cases


def hand_picked() -> list[Case]:
    post = {"method": "POST"}
    plain = answer("X-A: 1")
    told = [
        ("absolute form", request("http://shop/x%2f?y"), plain),
        ("absolute form, another host", request("http://evil:81/x?y"), plain),
        ("absolute form without a path", request("http://shop"), plain),
        ("OPTIONS asterisk", request("*", method="OPTIONS"), plain),
        ("TRACE", request(method="TRACE"), plain),
        ("GET with a body", request("/a", "Content-Length: 3", body=b"abc"), plain),
        ("DELETE with a body", request("/a", "Content-Length: 3", method="DELETE", body=b"abc"), plain),
        ("POST with nothing", request("/a", **post), plain),
        ("POST of length 0", request("/a", "Content-Length: 0", **post), plain),
        ("length with zeros", request("/a", "Content-Length: 003", body=b"abc", **post), plain),
        ("chunk extensions", request("/a", "Transfer-Encoding: chunked", body=b"3;a=b\r\nabc\r\n0\r\n\r\n", **post), plain),
        ("trailers", request("/a", "Transfer-Encoding: chunked", body=b"3\r\nabc\r\n0\r\nX-T: 1\r\n\r\n", **post), plain),
        ("upper-case coding", request("/a", "Transfer-Encoding: CHUNKED", body=chunk(b"abc") + last_chunk, **post), plain),
        ("100-continue", request("/a", "Expect: 100-continue", "Content-Length: 3", body=b"abc", **post), plain),
        ("hop-by-hop", request("/a", "Keep-Alive: 5", "TE: trailers", "Proxy-Authorization: x", "X-A: 1"), plain),
        ("named by Connection", request("/a", "X-Named: 1", "X-Kept: 1", "Connection: X-Named, close"), plain),
        ("lies about the client", request("/a", "X-Forwarded-For: 6.6.6.6", "X-Forwarded-Proto: https",
         "X-Forwarded-Host: evil", "X-Forwarded-Prefix: /evil", "Forwarded: for=6.6.6.6"), plain),
        ("1.0 client", request(version="1.0"), plain),
        ("1.0 client without host", request(version="1.0", host=None), plain),
        ("1.0 client, chunked answer", request(version="1.0"),
         answer("Transfer-Encoding: chunked", body=chunk(b"abc") + last_chunk, length=False)),
        ("empty host", request(host=""), plain),
        ("host with a port", request(host="shop:8080"), plain),
        ("IPv6 host", request(host="[::1]:8080"), plain),
        ("a URL of 9000 bytes", request("/?" + "q" * 9000), plain),
        ("a cookie of 9000 bytes", request("/a", "Cookie: " + "c" * 9000), plain),
        ("150 headers", request("/a", *(f"X-{n}: {n}" for n in range(150))), plain),
        ("duplicates in several cases", request("/a", "X-D: 1", "x-d: 2", "X-D: 3", "X-d: 4"), plain),
        ("white space around values", request("/a", "X-A:  a ", "X-B:\tb\t", "X-C:c"), plain),
        ("an upgrade to h2c", request("/a", "Upgrade: h2c", "Connection: Upgrade, close"), plain),
        ("HEAD with a length", request(method="HEAD"), answer("ETag: x", "Content-Length: 12", body=b"", length=False)),
        ("HEAD, chunked", request(method="HEAD"), answer("Transfer-Encoding: chunked", body=b"", length=False)),
        ("HEAD with a body", request(method="HEAD"), answer("X-A: 1")),
        ("204", request(), answer("X-A: 1", first="HTTP/1.1 204 No Content", body=b"", length=False)),
        ("204 of length 0", request(), answer(first="HTTP/1.1 204 No Content", body=b"")),
        ("204 of length 5", request(), answer("Content-Length: 5", first="HTTP/1.1 204 N", body=b"", length=False)),
        ("304 with a length", request(), answer("ETag: x", "Content-Length: 9", first="HTTP/1.1 304 N", body=b"", length=False)),
        ("206", request("/a", "Range: bytes=0-1"), answer("Content-Range: bytes 0-1/10", first="HTTP/1.1 206 P", body=b"ab")),
        ("three cookies", request(), answer("Set-Cookie: a=1", "Set-Cookie: b=2", "Set-Cookie: c=3; Path=/")),
        ("a 1.0 answer", request(), answer("X-A: 1", first="HTTP/1.0 200 OK", length=False)),
        ("an answer without a reason", request(), answer(first="HTTP/1.1 200 ")),
        ("an answer with early hints", request(), b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + plain),
        ("an answer with trailers", request(), answer("Trailer: X-T", "Transfer-Encoding: chunked",
         body=b"3;x=y\r\nabc\r\n0\r\nX-T: 1\r\n\r\n", length=False)),
        ("an empty answer", request(), answer(body=b"")),
        ("an answer with 9000 bytes of a header", request(), answer("Set-Cookie: " + "c" * 9000)),
        ("hop-by-hop in an answer", request(), answer("Keep-Alive: timeout=5", "Proxy-Authenticate: x", "X-A: 1")),
        ("answer headers of length 0", request(), answer("X-Empty:", "X-A: 1")),
        # Refused:
        ("raw utf-8 in the target", request("/\xe4\xbd\xa0"), plain),
        ("raw latin-1 in the target", request("/caf\xe9"), plain),
        ("a fragment in the target", request("/a#b"), plain),
        ("an unknown method", request(method="FOO"), plain),
        ("a lower-case method", request(method="get"), plain),
        ("two user agents", request("/a", "User-Agent: a", "User-Agent: b"), plain),
        ("two content types", request("/a", "Content-Type: a/b", "Content-Type: c/d"), plain),
        ("a folded header", request("/a", "X-A: 1\r\n  2"), plain),
        ("bare line feeds", b"GET /a HTTP/1.1\nHost: shop\n\n", plain),
        ("a space before the colon", request("/a", "X-A : 1"), plain),
        ("a control character in a value", request("/a", "X-A: a\x01b"), plain),
        ("another transfer coding", request("/a", "Transfer-Encoding: gzip, chunked", body=chunk(b"a") + last_chunk, **post), plain),
        ("chunked from a 1.0 client", request("/a", "Transfer-Encoding: chunked", version="1.0", body=last_chunk, **post), plain),
        ("both framings", request("/a", "Content-Length: 3", "Transfer-Encoding: chunked", body=last_chunk, **post), plain),
        ("two lengths", request("/a", "Content-Length: 3", "Content-Length: 4", body=b"abcd", **post), plain),
        ("no host", request(host=None), plain),
        ("a host that is none", request(host="a/b"), plain),
        ("another expectation", request("/a", "Expect: a-miracle", "Content-Length: 1", body=b"a", **post), plain),
        ("CONNECT", request("shop:443", method="CONNECT"), plain),
        ("a head of 70 KB", request("/a", "X-A: " + "x" * 70_000), plain),
        ("answered with both framings", request(), answer("Transfer-Encoding: chunked", body=chunk(b"abc") + last_chunk)),
        ("answered with two lengths", request(), answer("Content-Length: 4")),
        ("answered with another transfer coding", request(), answer("Transfer-Encoding: gzip", length=False)),
        ("answered with a control character", request(), answer("X-A: a\x01b")),
        ("answered with more than its length", request(), answer("Content-Length: 3", body=b"abcdef", length=False)),
    ]  # fmt: skip
    return [Case(*each) for each in told]


# --- the recording upstream, and the three ways -------------------------------------------------------------------


class Recorder:
    """An upstream that notes requests as they are and answers with what the current case says."""

    def __init__(self) -> None:
        self.current: Case | None = None
        self.way = ""
        self.port = 0

    @asynccontextmanager
    async def listen(self) -> AsyncIterator[Recorder]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=1024 * 1024)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            await server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            top = re.split(rb"\r?\n", (await self._head(reader)).rstrip(b"\r\n"))
            method, _, rest = top[0].partition(b" ")
            target, _, version = rest.rpartition(b" ")
            headers = [(n, v.strip(b" \t")) for n, _, v in (line.partition(b":") for line in top[1:])]
            case = self.current
            assert case is not None
            case.seen.setdefault(self.way, []).append(
                Seen(method, target, version, headers, await self._body(reader, headers))
            )
            writer.write(case.answer)
            await writer.drain()
            if writer.can_write_eof():
                writer.write_eof()
            await reader.read()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.transport.abort()

    async def _head(self, reader: asyncio.StreamReader) -> bytes:
        head = b""
        while not head.endswith((b"\r\n\r\n", b"\n\n")):
            head += await reader.readuntil(b"\n")
        return head

    async def _body(self, reader: asyncio.StreamReader, headers: list[tuple[bytes, bytes]]) -> bytes:
        fields = {name.lower(): value for name, value in headers}
        if b"chunked" in fields.get(b"transfer-encoding", b"").lower():
            body = b""
            while size := int((await reader.readuntil(b"\n")).split(b";")[0].strip(), 16):
                body += (await reader.readexactly(size + 2))[:-2]
            while (await reader.readuntil(b"\n")).strip():
                pass  # trailers
            return body
        return await reader.readexactly(int(fields.get(b"content-length", b"0").split(b",")[0]))


@asynccontextmanager
async def nginx(upstream: int, folder: Path) -> AsyncIterator[int]:
    """Run nginx in front of a port, from a folder of its own; yield its port."""
    port = free_port()
    temporary = "".join(
        f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (folder / "nginx.conf").write_text(f"""
        daemon off; master_process off; pid {folder}/nginx.pid; error_log {folder}/error.log; events {{}}
        http {{ access_log off; {temporary} keepalive_timeout 0; gzip off;
          server {{ listen 127.0.0.1:{port}; merge_slashes off; underscores_in_headers on; ignore_invalid_headers off;
            client_max_body_size 0; large_client_header_buffers 8 128k; client_header_buffer_size 128k;
            location / {{ proxy_pass http://127.0.0.1:{upstream}; proxy_http_version 1.1; proxy_redirect off;
              proxy_set_header Host $http_host; proxy_set_header Connection ""; proxy_pass_header Server;
              proxy_pass_header Date; proxy_buffering off; proxy_request_buffering off; proxy_buffer_size 64k; proxy_buffers 8 64k; proxy_busy_buffers_size 128k;
              proxy_max_temp_file_size 0; proxy_next_upstream off; }} }} }}
    """)
    process = subprocess.Popen(
        [str(NGINX_BINARY), "-p", str(folder), "-c", str(folder / "nginx.conf"), "-e", str(folder / "start.log")]
    )
    try:

        async def listens() -> bool:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                return False
            writer.transport.abort()
            return True

        async with asyncio.timeout(5):
            while not await listens():
                assert process.poll() is None, (folder / "start.log").read_text()
                await asyncio.sleep(0.01)
        yield port
    finally:
        process.terminate()
        process.wait(5)


# --- differences --------------------------------------------------------------------------------------------------

HOP = {b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection", b"te",
       b"transfer-encoding", b"upgrade"}  # fmt: skip


def header_kinds(side: str, straight: list[tuple[bytes, bytes]], got: list[tuple[bytes, bytes]]) -> list[str]:
    """Tell how end-to-end headers differ: missing, new, their order, the case of their names."""
    a = [(n, v) for n, v in straight if n.lower() not in HOP and (side, n.lower()) != ("request", b"content-length")]
    b = [(n, v) for n, v in got if n.lower() not in HOP and (side, n.lower()) != ("request", b"content-length")]
    if a == b:
        return []
    low_a = Counter((n.lower(), v) for n, v in a)
    low_b = Counter((n.lower(), v) for n, v in b)
    kinds = [f"{side} -{n.decode()}" for n, _ in (low_a - low_b)] + [
        f"{side} +{n.decode()}" for n, _ in (low_b - low_a)
    ]
    common = Counter(a) & Counter(b)
    if Counter((n.lower(), v) for n, v in common.elements()) != low_a & low_b:
        kinds.append(f"{side} case")
    if [p for p in a if p in common] != [p for p in b if p in common]:
        kinds.append(f"{side} order")
    return kinds


def differences(case: Case, way: str, straight: bytes, got: bytes) -> list[str]:
    """Return the kinds of differences between the straight way and another, at both ends."""
    kinds: list[str] = []
    if not case.seen.get(way):
        kinds.append("not reached")
    else:
        (a,), (b,) = case.seen["straight"], case.seen[way]
        for name in ("method", "target", "version", "body"):
            if getattr(a, name) != getattr(b, name):
                kinds.append(f"request {name}")
        kinds += header_kinds("request", a.headers, b.headers)
    head_only = case.request.startswith(b"HEAD")
    a_status, a_headers, a_body, _ = parse_response(straight, head_only=head_only)
    b_status, b_headers, b_body, b_whole = parse_response(got, head_only=head_only)
    if a_status != b_status:
        return [*kinds, f"answer status {a_status} -> {b_status}"]
    a_first, b_first = (
        re.sub(rb"^(HTTP/1.1 1\d\d .*?\r\n\r\n)+", b"", x, flags=re.S).split(b"\r\n")[0] for x in (straight, got)
    )
    if a_first[:8] != b_first[:8]:
        kinds.append("answer version")
    if a_first[8:] != b_first[8:]:
        kinds.append("answer reason")
    if a_body != b_body or not b_whole:
        kinds.append("answer body")
    raw = [[(n.encode("latin-1"), v.encode("latin-1")) for n, v in headers] for headers in (a_headers, b_headers)]
    return kinds + header_kinds("answer", *raw)


def closing(data: bytes) -> bytes:
    """Ask for the connection's end in a request that does not say anything about it."""
    if b"\r\n\r\n" not in data or re.search(rb"(?i)\nconnection:", data.partition(b"\r\n\r\n")[0]):
        return data
    return data.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1)


async def through(case: Case, recorder: Recorder, way: str, port: int) -> bytes:
    recorder.current, recorder.way = case, way
    case.seen.pop(way, None)
    try:
        return await raw_request(port, closing(case.request))
    except TimeoutError:
        raise AssertionError(f"{case.name}: no end on the way through {way}") from None


CASES = [*generated(340), *hand_picked()]


def test_there_are_enough_cases() -> None:
    assert len(CASES) > 400
    assert len({case.name for case in CASES}) == len(CASES)


def kind_of(kind: str, case: Case) -> str:
    """Name a header that this case's Connection names."""
    return "request -named" if case.name == "named by Connection" and kind == "request -x-named" else kind


async def test_nothing_differs_but_what_the_tables_say() -> None:
    used: set[str] = set()
    refused: set[str] = set()
    wrong: list[str] = []
    async with Recorder().listen() as recorder:
        settings = {"host_header": "client"}
        async with proxy(
            f"http://127.0.0.1:{recorder.port}", settings=settings, limits={"lingering_time": 0.05}
        ) as site:
            for case in CASES:
                straight = await through(case, recorder, "straight", recorder.port)
                ours = await through(case, recorder, "proxy", site.port or 0)
                kinds = [kind_of(kind, case) for kind in differences(case, "proxy", straight, ours)]
                if case.name in REFUSED:
                    status = parse_response(ours)[0]
                    assert b"application/problem+json" in ours
                    if status != REFUSED[case.name][0]:
                        wrong.append(f"{case.name}: {status}, not {REFUSED[case.name][0]}")
                    if status < 500 and case.seen.get("proxy"):
                        wrong.append(f"{case.name}: reached the upstream")
                    refused.add(case.name)
                    continue
                for kind in kinds:
                    match = next((pattern for pattern in ACCEPTED if re.fullmatch(pattern, kind)), None)
                    if match is None:
                        wrong.append(f"{case.name}: {kind}")
                    else:
                        used.add(match)
    assert not wrong, "\n".join(wrong)
    assert refused == set(REFUSED)
    assert used == set(ACCEPTED), f"never seen: {set(ACCEPTED) - used}"


@pytest.mark.nginx
@pytest.mark.skipif(NGINX_BINARY is None, reason="nginx is not installed")
async def test_nginx_changes_more(tmp_path: Path) -> None:
    """The harness sees differences where they are: nginx's are known, and more than ours on what both pass on."""
    ours = theirs = 0
    wrong: list[str] = []
    async with Recorder().listen() as recorder, nginx(recorder.port, tmp_path) as port:
        settings = {"host_header": "client"}
        async with proxy(
            f"http://127.0.0.1:{recorder.port}", settings=settings, limits={"lingering_time": 0.05}
        ) as site:
            for case in CASES:
                if case.name in REFUSED:
                    continue
                straight = await through(case, recorder, "straight", recorder.port)
                passed = await through(case, recorder, "nginx", port)
                kinds = [kind_of(kind, case) for kind in differences(case, "nginx", straight, passed)]
                wrong += [f"{case.name}: {k}" for k in kinds if not any(re.fullmatch(p, k) for p in NGINX)]
                theirs += len(kinds)
                mine = differences(case, "proxy", straight, await through(case, recorder, "proxy", site.port or 0))
                ours += len([kind for kind in mine if not re.fullmatch(r"request \+.*forwarded.*", kind)])
    assert not wrong, "\n".join(wrong)
    assert ours < theirs / 4, (ours, theirs)
