"""Which headers cross the proxy, and what they say afterwards; pure functions over lists of pairs.

Header text is what aiohttp makes of the bytes, `utf-8` with `surrogateescape`: `encode_header` gives back the very
bytes, so a value in Latin-1 crosses unchanged (`server.exact` writes heads with it; aiohttp's own writer drops such
a byte without a word).
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

from aiohttp import web

__all__ = [
    "HOP_BY_HOP",
    "Headers",
    "RawHeaders",
    "decode_header",
    "encode_header",
    "end_to_end",
    "forwarded_headers",
    "header_values",
    "is_trusted",
    "peer_address",
    "request_id",
]

type_network = IPv4Network | IPv6Network
Headers = list[tuple[str, str]]
RawHeaders = Iterable[tuple[bytes, bytes]]

# RFC 9110 7.6.1, with the Proxy-* fields of RFC 9110 11.7 (meant for this hop) and Trailer, whose fields are dropped.
HOP_BY_HOP = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authentication-info",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
# What a `Connection:` header cannot take away, whatever it names: without Host or with another framing, two servers
# would read two different requests out of the same bytes.
_PROTECTED = frozenset({"host", "content-length"})
_FORWARDED = frozenset({"forwarded", "x-forwarded-for", "x-forwarded-proto", "x-forwarded-host"})
_REQUEST_ID = re.compile(r"[!-~]{1,128}")
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_REQUEST_ID_KEY = web.RequestKey("request_id", str)


def decode_header(raw: bytes) -> str:
    """Return header bytes as text, every byte kept (see `encode_header`)."""
    return raw.decode("utf-8", "surrogateescape")


def encode_header(text: str) -> bytes:
    """Return the bytes that `decode_header` read."""
    return text.encode("utf-8", "surrogateescape")


def header_values(raw_headers: RawHeaders, name: str) -> list[str]:
    """Return the members of a comma-separated header, lower case, over all of its lines."""
    wanted = name.lower().encode()
    lines = (value for key, value in raw_headers if key.lower() == wanted)
    return [item for line in lines for part in line.split(b",") if (item := decode_header(part).strip(" \t").lower())]


def end_to_end(raw_headers: RawHeaders, *, length: int | None = None) -> Headers:
    """Return the headers that go on to the next hop: order, case, duplicates and bytes kept.

    Dropped are the hop-by-hop headers, those that a `Connection` header names (RFC 9110 7.6.1), and the framing:
    Transfer-Encoding always, Content-Length unless the caller knows the body's length and gives it.

    Args:
        length: the body's length in bytes; it stands where the first Content-Length stood, or at the end.
    """
    pairs = list(raw_headers)
    named = set(header_values(pairs, "connection")) - _PROTECTED
    kept: Headers = []
    for raw_name, raw_value in pairs:
        name = decode_header(raw_name)
        low = name.lower()
        if low == "content-length":
            if length is not None:
                kept.append((name, str(length)))
                length = None
        elif low not in HOP_BY_HOP and low not in named:
            kept.append((name, decode_header(raw_value)))
    if length is not None:
        kept.append(("Content-Length", str(length)))
    return kept


def request_id(request: web.BaseRequest) -> str:
    """Return the id of this request: the client's X-Request-ID if it is short visible ASCII, else a new one.

    The same at every call for one request. It goes into logs and errors; upstream only if the client sent it.
    """
    known = request.get(_REQUEST_ID_KEY)
    if known is None:
        sent = request.headers.get("X-Request-ID", "")
        known = request[_REQUEST_ID_KEY] = sent if _REQUEST_ID.fullmatch(sent) else uuid.uuid4().hex
    return known


def peer_address(request: web.BaseRequest) -> str | None:
    """Return the client's IP address, IPv4 also where the socket maps it into IPv6; None on a unix socket."""
    transport = request.transport
    peer = transport.get_extra_info("peername") if transport is not None else None
    if not isinstance(peer, tuple) or not peer:
        return None
    address = _address(str(peer[0]))
    return None if address is None else str(address)


def is_trusted(peer: str | None, trusted_proxies: Sequence[type_network]) -> bool:
    """Tell whether what this peer says about its own client is believed.

    A unix socket's peer (None) is on this machine, and is believed where 127.0.0.1 is.
    """
    address = _address("127.0.0.1" if peer is None else peer)
    return address is not None and any(
        address.version == network.version and address in network for network in trusted_proxies
    )


def forwarded_headers(
    headers: Headers,
    *,
    peer: str | None,
    scheme: str,
    host: str,
    trusted_proxies: Sequence[type_network] = (),
) -> Headers:
    """Return `headers` with who asked, how and for which host, told once (X-Forwarded-*, and RFC 7239).

    What an untrusted peer says of itself is removed, all `X-Forwarded-*` with it. A trusted peer's chain is
    extended: X-Forwarded-For and Forwarded by the peer, while Proto and Host keep what its own client used.

    Args:
        headers: end-to-end headers of the request.
        peer: the client's address, None when unknown.
        scheme: `http` or `https`, as the client reached us.
        host: the request's authority; empty when it has none.
    """
    chain: dict[str, list[str]] = {}
    if is_trusted(peer, trusted_proxies):
        kept = [pair for pair in headers if pair[0].lower() not in _FORWARDED]
        for name, value in headers:
            if name.lower() in _FORWARDED and value:
                chain.setdefault(name.lower(), []).append(value)
    else:
        kept = [pair for pair in headers if pair[0].lower() != "forwarded" and not _is_x_forwarded(pair[0])]
    if addresses := [*chain.get("x-forwarded-for", []), *([peer] if peer else [])]:
        kept.append(("X-Forwarded-For", ", ".join(addresses)))
    kept.append(("X-Forwarded-Proto", ", ".join(chain.get("x-forwarded-proto", [scheme]))))
    if hosts := chain.get("x-forwarded-host", [host] if host else []):
        kept.append(("X-Forwarded-Host", ", ".join(hosts)))
    hop = f"for={_node(peer)}" + (f";host={_quoted(host)}" if host else "") + f";proto={scheme}"
    kept.append(("Forwarded", ", ".join([*chain.get("forwarded", []), hop])))
    return kept


def _is_x_forwarded(name: str) -> bool:
    # An underscore reads as a hyphen for CGI-like hosts (`X_Forwarded_For`), so that spelling is a lie as well.
    return name.lower().replace("_", "-").startswith("x-forwarded-")


def _address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return address.ipv4_mapped or address if isinstance(address, IPv6Address) else address


def _node(peer: str | None) -> str:
    """Return a node identifier (RFC 7239 section 6): an IPv6 address in brackets and quotes."""
    if peer is None:
        return "unknown"
    return f'"[{peer}]"' if ":" in peer else peer


def _quoted(value: str) -> str:
    if _TOKEN.fullmatch(value):
        return value
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
