"""The sections of the file as frozen models, from the server down to a route; a default lives here and nowhere else.

Durations are seconds, sizes bytes, None is what the file calls `off`. What a file may say in more than one place (the
settings of a stream, in `stream`) is merged by `sse_proxy.config`; the models hold the result.
"""

from __future__ import annotations

import ipaddress
import os
import re
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, get_args

from sse_proxy.config import places
from sse_proxy.config.kinds import Kind, Settings, boolean, check_text, choice, duration, integer, section, size
from sse_proxy.config.places import IPNetwork, host_name, is_below
from sse_proxy.config.stream import StreamSettings
from sse_proxy.config.values import Refused, plain

__all__ = [
    "PRESETS",
    "Capture",
    "Config",
    "Listen",
    "LogSettings",
    "Match",
    "Route",
    "RouteBase",
    "ServerSettings",
    "ServerTls",
    "Upstream",
    "UpstreamBase",
    "UpstreamTls",
]

PRESETS = ("gaapi", "gachatbot", "agui", "openai", "none")
"""The names of the presets; their values are in `sse_proxy.config.presets`."""

# A table for look-ups is kept in the __dict__ of its model, as functools.cached_property does: pydantic leaves what is
# there beside the fields out of ==, repr and dumps.
_TABLE = "_table"

_LONGEST_SOCKET_PATH = 107  # bytes of sockaddr_un.sun_path on Linux, without its NUL


class Listen(Settings):
    """Where to listen: a host and a port, or the path of a Unix socket.

    Attributes:
        host: name or address, an IPv6 address without its brackets; None for a Unix socket.
        port: 0 takes a free one; None for a Unix socket.
        path: of the Unix socket, absolute; None for a host and port.
    """

    host: str | None = None
    port: int | None = None
    path: str | None = None

    @classmethod
    def parse(cls, value: str) -> Listen:
        """Read `HOST:PORT`, `[::]:PORT` or `unix:/path`.

        Raises:
            Refused: it is none of these.
        """
        allowed = 'allowed: HOST:PORT, "[::]:PORT" (quoted), or unix:/path'
        value = check_text(value, what='HOST:PORT, "[::]:PORT" (quoted), or unix:/path')
        if value.startswith("unix:"):
            path = value.removeprefix("unix:")
            if not path.startswith("/") or path.endswith("/"):
                raise Refused("allowed: unix: and the absolute path of a socket")
            if len(os.fsencode(path)) > _LONGEST_SOCKET_PATH:
                raise Refused(f"allowed: a socket's path of at most {_LONGEST_SOCKET_PATH} bytes")
            return cls(path=path)
        host, colon, port = value.rpartition(":")
        if not colon or not re.fullmatch(r"[0-9]{1,9}", port):
            hint = ""
            if re.fullmatch(r"[0-9]{1,5}", value):
                hint = f" (did you mean 127.0.0.1:{value}?)"
            raise Refused(allowed + hint)
        if not host:
            raise Refused(f"{allowed} (did you mean 0.0.0.0{value}?)")
        if int(port) > 65535:
            raise Refused("allowed: a port from 0 to 65535")
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
            try:
                ipaddress.IPv6Address(host)
            except ValueError:
                raise Refused(allowed) from None
        elif re.fullmatch(r"[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*", host):
            raise Refused(f'{allowed} (did you mean "[{host}]:{port}"?)')
        elif not places.HOST.fullmatch(host) or host.isdecimal():
            # A bare number would be an address to the resolver (127 is 0.0.0.127): nobody means that.
            raise Refused(allowed)
        return cls(host=host, port=int(port))

    def overlaps(self, other: Listen) -> bool:
        """Say whether both cannot listen at once: the same socket, or the same port of a common address."""
        if self.path is not None or other.path is not None:
            return self.path == other.path
        if self.port != other.port or self.port == 0:
            return False
        mine, theirs = ("127.0.0.1" if host == "localhost" else host for host in (self.host, other.host))
        return mine == theirs or not {mine, theirs}.isdisjoint(("0.0.0.0", "::"))

    def __str__(self) -> str:
        if self.path is not None:
            return f"unix:{self.path}"
        return f"[{self.host}]:{self.port}" if self.host and ":" in self.host else f"{self.host}:{self.port}"


def _listen(*, off: bool = False) -> Kind:
    def parse(value: Any, _from_file: bool) -> Listen:
        if isinstance(value, Listen):
            return value
        if isinstance(value, str):
            return Listen.parse(value)
        number = plain(value)
        hint = f" (did you mean 127.0.0.1:{number}?)" if type(number) is int and 0 < number < 65536 else ""
        raise Refused(f'allowed: HOST:PORT, "[::]:PORT" (quoted), or unix:/path{hint}')

    return Kind('HOST:PORT, "[::]:PORT" (quoted), or unix:/path', parse, str, {"type": "string"}, off=off)


class ServerTls(Settings):
    """The certificate to serve https with.

    Attributes:
        cert: PEM file with the certificate and its chain.
        key: PEM file with the private key.
    """

    cert: Annotated[Path, places.file_name("a PEM file")]
    key: Annotated[Path, places.file_name("a PEM file")]


Level: TypeAlias = Literal["debug", "info", "warning", "error"]


class LogSettings(Settings):
    """What is logged, and how.

    Attributes:
        level: the least level that is written.
        format: `text` for people, `json` for machines; one line a request, with the stream's ledger.
    """

    level: Annotated[Level, choice(get_args(Level))] = "info"
    format: Annotated[Literal["text", "json"], choice(("text", "json"))] = "text"


class Capture(Settings):
    """What the inspector keeps of recent streams.

    Attributes:
        keep: how many streams.
        max_bytes: how much of each side of one stream.
    """

    keep: Annotated[int, integer(1, 10_000)] = 50
    max_bytes: Annotated[int, size()] = 256 * 1024


class ServerSettings(Settings):
    """The keys at the top of the file that are not about an upstream.

    Attributes:
        listen: where the proxy listens.
        admin: where health, metrics, live streams and the inspector are; None for nowhere.
        tls: the certificate to serve https with; None for http.
        trusted_proxies: networks whose X-Forwarded-* are believed.
        max_streams: streams at once; beyond, 503 with Retry-After.
        max_header: bytes of a request's or a response's head.
        head_timeout: seconds for a client's request head, from its first byte; then 408.
        body_timeout: seconds between two pieces of a request body; None waits for ever.
        drain_timeout: seconds that streams may go on after SIGTERM.
        capture: what the inspector keeps; None for nothing.
        transcript: file that takes one JSONL line per complete exchange; None for none.
    """

    listen: Annotated[Listen, _listen()] = Listen(host="127.0.0.1", port=8080)
    admin: Annotated[Listen | None, _listen(off=True)] = Listen(host="127.0.0.1", port=9901)
    tls: Annotated[ServerTls | None, section(ServerTls, off=True)] = None
    log: Annotated[LogSettings, section(LogSettings)] = LogSettings()
    trusted_proxies: Annotated[tuple[IPNetwork, ...], places.networks] = ()
    max_streams: Annotated[int, integer(1, 1_000_000)] = 1000
    max_header: Annotated[int, size(least=1024)] = 64 * 1024
    head_timeout: Annotated[float, duration()] = 10.0
    body_timeout: Annotated[float | None, duration(off=True)] = 60.0
    drain_timeout: Annotated[float, duration()] = 30.0
    capture: Annotated[Capture | None, section(Capture, off=True)] = None
    transcript: Annotated[Path | None, places.file_name("a file", append=True, off=True)] = None


class Match(Settings):
    """Which requests go to an upstream.

    Attributes:
        path: prefix of whole segments: `/api` is for `/api` and `/api/x`, not for `/apix`; `/` for all.
        host: name in the request's Host, in lower case and without port; None for every one.
    """

    path: Annotated[str, places.path()] = "/"
    host: Annotated[str | None, places.host] = None


class UpstreamTls(Settings):
    """How an https upstream is verified.

    Attributes:
        verify: whether its certificate is checked.
        ca_file: PEM file of the authorities it may come from; None for the system's.
    """

    verify: Annotated[bool, boolean] = True
    ca_file: Annotated[Path | None, places.file_name("a PEM file", off=True, null=True)] = None


class RouteBase(Settings):
    """What says which requests a route is for.

    Attributes:
        path: as the upstream sees it: after `strip_prefix`, without the path of the upstream's URL. Exact, or ending
            in `*` for a prefix.
        methods: in upper case; None for every one.
    """

    path: Annotated[str, places.path(star=True)]
    methods: Annotated[tuple[str, ...] | None, places.methods] = None


class Route(RouteBase):
    """A declared route.

    Attributes:
        stream: how its event streams are treated; None passes them on byte for byte.
    """

    stream: StreamSettings | None


class UpstreamBase(Settings):
    """What an upstream has beside settings of streams.

    Attributes:
        name: unique label, used in logs and metrics.
        url: http or https, without a slash at its end; a path is a prefix of every target.
        match: which requests come here.
        strip_prefix: beginning of the request's path that the upstream does not see; None for none.
        preset: the preset whose settings and routes it starts from.
        mode: `observe` passes bytes on unchanged and reports what `repair` would have done.
        host_header: whether the upstream is sent its own host or the client's.
        tls: how an https upstream is verified.
        connect_timeout: seconds for a connection, TLS included.
        response_timeout: seconds for the head of a plain response; None waits for ever.
    """

    name: Annotated[str, places.name]
    url: Annotated[str, places.url]
    match: Annotated[Match, section(Match)] = Match()
    strip_prefix: Annotated[str | None, places.path(off=True)] = None
    preset: Annotated[str, choice(PRESETS)] = "gaapi"
    mode: Annotated[Literal["repair", "observe"], choice(("repair", "observe"))] = "repair"
    host_header: Annotated[Literal["upstream", "client"], choice(("upstream", "client"))] = "upstream"
    tls: Annotated[UpstreamTls, section(UpstreamTls)] = UpstreamTls()
    connect_timeout: Annotated[float, duration()] = 5.0
    response_timeout: Annotated[float | None, duration(off=True)] = 120.0


class Upstream(UpstreamBase):
    """One upstream, with everything merged; made in code it has the routes it is given and no others.

    Attributes:
        routes: the preset's first, each with its settings merged.
        undeclared: for an event stream on a route that is not declared: read by the standard, passed one to one.
    """

    routes: tuple[Route, ...] = ()
    undeclared: StreamSettings = StreamSettings()

    def stripped(self, path: str) -> str:
        """Return the request's path without `strip_prefix`: still raw, and never empty."""
        prefix = self.strip_prefix
        if prefix is None or not is_below(path, prefix):
            return path
        return path[len(prefix.rstrip("/")) :] or "/"

    def route_for(self, method: str, path: str) -> Route | None:
        """Find the declared route of a request, or None.

        An exact path goes before a prefix, a longer prefix before a shorter one.

        Args:
            method: as it stands in the request.
            path: the request's raw path, still percent-encoded, without query and as the client sent it:
                `strip_prefix` is taken off here.
        """
        table: _RouteTable | None = self.__dict__.get(_TABLE)
        if table is None or table.routes is not self.routes:  # also after model_copy(update=...)
            table = self.__dict__[_TABLE] = _RouteTable(self.routes)
        return table.find(method, self.stripped(path))


class _RouteTable:
    """The routes of one upstream, ordered once for many look-ups."""

    __slots__ = ("_exact", "_prefixes", "routes")

    def __init__(self, routes: tuple[Route, ...]) -> None:
        self.routes = routes
        self._exact: dict[str, list[Route]] = {}
        prefixes: list[tuple[str, Route]] = []
        for route in routes:
            if route.path.endswith("*"):
                prefixes.append((route.path[:-1], route))
            else:
                self._exact.setdefault(route.path, []).append(route)
        self._prefixes = sorted(prefixes, key=lambda entry: -len(entry[0]))  # stable: the first wins

    def find(self, method: str, path: str) -> Route | None:
        for route in self._exact.get(path, ()):
            if route.methods is None or method in route.methods:
                return route
        for prefix, route in self._prefixes:
            if path.startswith(prefix) and (route.methods is None or method in route.methods):
                return route
        return None


class Config(ServerSettings):
    """A whole configuration.

    Attributes:
        upstreams: at least one, in the order of the file.
    """

    upstreams: tuple[Upstream, ...]

    def upstream_for(self, path: str, host: str) -> Upstream | None:
        """Find the upstream of a request, or None: longest path prefix, then host; the first wins on a tie.

        Args:
            path: the request's raw path, without query.
            host: the request's Host, with or without port; case does not matter.
        """
        table: _UpstreamTable | None = self.__dict__.get(_TABLE)
        if table is None or table.upstreams is not self.upstreams:  # also after model_copy(update=...)
            table = self.__dict__[_TABLE] = _UpstreamTable(self.upstreams)
        return table.find(path, host)


class _UpstreamTable:
    """The upstreams of a configuration, ordered once for many look-ups."""

    __slots__ = ("_entries", "upstreams")

    def __init__(self, upstreams: tuple[Upstream, ...]) -> None:
        self.upstreams = upstreams
        entries = [(each.match.path.rstrip("/"), each.match.host, each) for each in upstreams]
        self._entries = sorted(entries, key=lambda entry: (-len(entry[0]), entry[1] is None))  # stable: the first wins

    def find(self, path: str, host: str) -> Upstream | None:
        name: str | None = None
        for prefix, wanted, upstream in self._entries:
            if not path.startswith(prefix) or (len(path) > len(prefix) and path[len(prefix)] != "/"):
                continue
            if wanted is None:
                return upstream
            if name is None:
                name = host_name(host)
            if name == wanted:
                return upstream
        return None
