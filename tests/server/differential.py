"""Raw requests with raw answers, an upstream that notes what it gets, nginx, and how two ways of one case differ."""

from __future__ import annotations

import asyncio
import random
import re
import shutil
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tests.fakes import chunk, free_port, last_chunk, parse_response, raw_request

__all__ = ["NGINX_BINARY", "Case", "Recorder", "differences", "generated", "hand_picked", "nginx", "through"]

NGINX_BINARY = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")

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
    trailers: bytes


METHODS = ["GET", "GET", "GET", "POST", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "PROPFIND", "REPORT"]
TARGETS = [
    "/", "/?", "/a", "/a/", "/a//b", "//a", "///", "/a/./b", "/a/../b", "/..", "/%2e%2e/", "/a%2Fb/%7Eu/%41", "/%",
    "/%zz", "/a;p=1;q", "/a?b", "/a?b=c&b=d", "/a?b?c", "/?%25s3&t=100%25", "/%E4%BD%A0", "/a+b?c+d", "/~u", "/\\a",
    "/a\\b", "/a|b", "/a'b\"c", "/<x>", "/{id}", "/a^b`c", "/@evil", "/:80", "/http://evil/", "/a%00b", "/a%0d%0ab",
    "/*", "/?=&&=", "/index.html", "/a.b-c_d!$&'()*+,=", "/hubs/chat?id=Zx_-1",
]  # fmt: skip
NAMES = [
    "Accept", "accept-language", "X-A", "x-a", "X-B", "COOKIE", "Cookie", "Authorization", "If-None-Match", "Range",
    "Cache-Control", "Origin", "Referer", "x-under_score", "X.Dotted", "Last-Event-ID", "DNT", "Accept-Encoding",
]  # fmt: skip
VALUES = [
    "", "a", "a, b", "a;q=0.5, */*", '"quoted, and ; more"', "caf\xe9", "\xff", "x" * 300, "a  b", "a=1; b=2", "*",
    "Basic dTpw", "bytes=0-1", "<>\\|^`{}", "W/\"x\"", "a\tb", "\xe4\xbd\xa0",
]  # fmt: skip
STATUSES = [
    (200, "OK"), (200, "Fine Thing"), (201, "Created"), (202, ""), (203, "X"), (206, "Partial Content"), (299, "Odd"),
    (301, "Moved"), (302, "Found"), (307, "There"), (400, "Bad"), (401, "Who"), (403, "No"), (404, "Not Found"),
    (409, "Conflict"), (418, "Teapot"), (422, "Hm"), (429, "Slow"), (500, "Oh"), (503, "Busy"), (599, "Odd"),
]  # fmt: skip
ANSWERS = [
    ("Set-Cookie", "a=1; Path=/"), ("Set-Cookie", "b=2; Expires=Wed, 21 Oct 2026 07:28:00 GMT"), ("ETag", '"v1"'),
    ("Server", "Kestrel"), ("Date", "Wed, 21 Oct 2015 07:28:00 GMT"), ("Content-Type", "text/html; charset=utf-8"),
    ("Content-Disposition", 'attachment; filename="caf\xe9.pdf"'), ("Location", "http://legacy/%2f"), ("X-A", "1"),
    ("x-a", "2"), ("Vary", "Origin"), ("Access-Control-Allow-Origin", "*"), ("Content-Encoding", "br"),
    ("Cache-Control", "no-store"), ("WWW-Authenticate", 'Basic realm="x", Bearer'), ("Link", "</x>; rel=next"),
    ("Content-Range", "bytes 0-1/10"), ("X-Empty", ""), ("Retry-After", "3"), ("Last-Modified", "now"),
]  # fmt: skip


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
    post = partial(request, method="POST")
    plain = answer("X-A: 1")
    chunked = "Transfer-Encoding: chunked"
    not_modified = answer("ETag: x", "Content-Length: 9", first="HTTP/1.1 304 N", body=b"", length=False)
    part = answer("Content-Range: bytes 0-1/10", first="HTTP/1.1 206 P", body=b"ab")
    told = [
        ("absolute form", request("http://shop/x%2f?y"), plain),
        ("absolute form, another host", request("http://evil:81/x?y"), plain),
        ("absolute form without a path", request("http://shop"), plain),
        ("OPTIONS asterisk", request("*", method="OPTIONS"), plain),
        ("TRACE", request(method="TRACE"), plain),
        ("GET with a body", request("/a", "Content-Length: 3", body=b"abc"), plain),
        ("DELETE with a body", request("/a", "Content-Length: 3", method="DELETE", body=b"abc"), plain),
        ("POST with nothing", post("/a"), plain),
        ("POST of length 0", post("/a", "Content-Length: 0"), plain),
        ("length with zeros", post("/a", "Content-Length: 003", body=b"abc"), plain),
        ("chunk extensions", post("/a", chunked, body=b"3;a=b\r\nabc\r\n0\r\n\r\n"), plain),
        ("trailers", post("/a", chunked, body=b"3\r\nabc\r\n0\r\nX-T: 1\r\n\r\n"), plain),
        ("upper-case coding", post("/a", chunked.upper(), body=chunk(b"abc") + last_chunk), plain),
        ("100-continue", post("/a", "Expect: 100-continue", "Content-Length: 3", body=b"abc"), plain),
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
        ("304 with a length", request(), not_modified),
        ("206", request("/a", "Range: bytes=0-1"), part),
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
        ("another transfer coding", post("/a", "Transfer-Encoding: gzip, chunked", body=last_chunk), plain),
        ("chunked from a 1.0 client", post("/a", chunked, version="1.0", body=last_chunk), plain),
        ("both framings", post("/a", "Content-Length: 3", chunked, body=last_chunk), plain),
        ("two lengths", post("/a", "Content-Length: 3", "Content-Length: 4", body=b"abcd"), plain),
        ("no host", request(host=None), plain),
        ("a host that is none", request(host="a/b"), plain),
        ("another expectation", post("/a", "Expect: a-miracle", "Content-Length: 1", body=b"a"), plain),
        ("CONNECT", request("shop:443", method="CONNECT"), plain),
        ("a head of 70 KB", request("/a", "X-A: " + "x" * 70_000), plain),
        ("answered with both framings", request(), answer(chunked, body=chunk(b"abc") + last_chunk)),
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
                Seen(method, target, version, headers, *await self._body(reader, headers))
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

    async def _body(self, reader: asyncio.StreamReader, headers: list[tuple[bytes, bytes]]) -> tuple[bytes, bytes]:
        """Read a body; return it and its trailers."""
        fields = {name.lower(): value for name, value in headers}
        body = trailers = b""
        if b"chunked" in fields.get(b"transfer-encoding", b"").lower():
            while size := int((await reader.readuntil(b"\n")).split(b";")[0].strip(), 16):
                body += (await reader.readexactly(size + 2))[:-2]
            while (line := await reader.readuntil(b"\n")).strip():
                trailers += line
            return body, trailers
        return await reader.readexactly(int(fields.get(b"content-length", b"0").split(b",")[0])), trailers


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
              proxy_pass_header Date; proxy_buffering off; proxy_request_buffering off; proxy_buffer_size 64k;
              proxy_buffers 8 64k; proxy_busy_buffers_size 128k;
              proxy_max_temp_file_size 0; proxy_next_upstream off; }} }} }}
    """)
    files = ("-p", str(folder), "-c", str(folder / "nginx.conf"), "-e", str(folder / "start.log"))
    process = await asyncio.create_subprocess_exec(str(NGINX_BINARY), *files)
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
                assert process.returncode is None, (folder / "start.log").read_text()
                await asyncio.sleep(0.01)
        yield port
    finally:
        if process.returncode is None:
            process.terminate()
        async with asyncio.timeout(5):
            await process.wait()


# --- differences --------------------------------------------------------------------------------------------------

HOP = {
    b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection", b"te",
    b"transfer-encoding", b"upgrade",
}  # fmt: skip


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
        return ["not reached"]
    (a,), (b,) = case.seen["straight"], case.seen[way]
    for name in ("method", "target", "version", "body", "trailers"):
        if getattr(a, name) != getattr(b, name):
            kinds.append(f"request {name}")
    kinds += header_kinds("request", a.headers, b.headers)
    head_only = case.request.startswith(b"HEAD")
    a_status, a_headers, a_body, _ = parse_response(straight, head_only=head_only)
    b_status, b_headers, b_body, b_whole = parse_response(got, head_only=head_only)
    if a_status != b_status:
        return [*kinds, f"answer status {a_status} -> {b_status}"]
    a_interim, a_first = status_lines(straight)
    b_interim, b_first = status_lines(got)
    if a_interim != b_interim:
        kinds.append("answer interim")
    if a_first[:8] != b_first[:8]:
        kinds.append("answer version")
    if a_first[8:] != b_first[8:]:
        kinds.append("answer reason")
    if (b"\nX-T:" in straight) != (b"\nX-T:" in got):
        kinds.append("answer trailers")
    if a_body != b_body or not b_whole:
        kinds.append("answer body")
    raw = [[(n.encode("latin-1"), v.encode("latin-1")) for n, v in headers] for headers in (a_headers, b_headers)]
    return kinds + header_kinds("answer", *raw)


def status_lines(data: bytes) -> tuple[list[bytes], bytes]:
    """Return the status lines of the interim answers (1xx), and that of the answer."""
    interim = []
    while re.match(rb"HTTP/1\.1 1", data):
        top, _, data = data.partition(b"\r\n\r\n")
        interim.append(top.partition(b"\r\n")[0])
    return interim, data.partition(b"\r\n")[0]


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
