"""Where an upstream is: what its URL and its TLS settings say, worked out once and not for each request."""

from __future__ import annotations

import asyncio
import ipaddress
import math
import socket
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from sse_proxy.config import Upstream

__all__ = ["Place", "UpstreamAddress"]

_DEFAULT_PORTS = {"http": 80, "https": 443}
_NAMES_TTL_S = 10.0  # as aiohttp's connector, which serves the same host's plain routes

Place = tuple[int, str]  # address family and IP address


class _Addresses:
    """The IP addresses of one host, kept for a few seconds, the one that worked last first.

    Most upstreams are called `localhost`: asking each time costs a thread switch, and trying ::1 first each time,
    where the host listens on 127.0.0.1 alone, costs a socket.
    """

    __slots__ = ("_expires_at", "_places")

    def __init__(self) -> None:
        self._places: list[Place] = []
        self._expires_at = 0.0

    async def find(self, host: str, port: int) -> list[Place]:
        """Return at least one address.

        Raises:
            OSError, UnicodeError: the name is not found, or is no name.
        """
        loop = asyncio.get_running_loop()
        if not self._places or loop.time() >= self._expires_at:
            if (literal := _literal(host)) is not None:
                self._places, self._expires_at = [literal], math.inf
                return [literal]
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            places = list(dict.fromkeys((int(family), str(address[0])) for family, _, _, _, address in found))
            if not places:
                raise OSError("the name has no address")
            best = self._places[:1]
            self._places = [place for place in best if place in places] + [p for p in places if p not in best]
            self._expires_at = loop.time() + _NAMES_TTL_S
        return list(self._places)

    def prefer(self, place: Place) -> None:
        """Try `place` first from now on."""
        if place in self._places and self._places[0] != place:
            self._places.remove(place)
            self._places.insert(0, place)

    def forget(self) -> None:
        """Ask again next time: none of them answers."""
        self._expires_at = 0.0


@dataclass(frozen=True, slots=True)
class UpstreamAddress:
    """One upstream's place.

    Attributes:
        host: name or IP address, without brackets.
        ssl_context: None for http.
        server_hostname: whose certificate is expected (and SNI); None for http.
        path_prefix: path of the URL, without a slash at its end; the caller puts it before its targets.
        authority: what a Host header says (RFC 9110 7.2): IPv6 in brackets, no port where it is the scheme's own.
    """

    host: str
    port: int
    ssl_context: ssl.SSLContext | None
    server_hostname: str | None
    path_prefix: str
    authority: str
    _names: _Addresses = field(default_factory=_Addresses, init=False, repr=False, compare=False)

    @classmethod
    def from_config(cls, upstream: Upstream) -> UpstreamAddress:
        """Take an upstream of the configuration. Call it once per configuration: it reads certificate files.

        Raises:
            OSError, ssl.SSLError: `ca_file` cannot be read.
        """
        return cls.from_url(upstream.url, verify=upstream.tls.verify, ca_file=upstream.tls.ca_file)

    @classmethod
    def from_url(cls, url: str, *, verify: bool = True, ca_file: Path | None = None) -> UpstreamAddress:
        """Take an http or https URL without user, query and fragment.

        Args:
            verify, ca_file: see `config.UpstreamTls`.

        Raises:
            ValueError: not such a URL.
            OSError, ssl.SSLError: `ca_file` cannot be read.
        """
        parts = urlsplit(url)
        host = parts.hostname
        if (
            parts.scheme not in _DEFAULT_PORTS
            or not host
            or parts.username is not None
            or parts.query
            or parts.fragment
        ):
            raise ValueError(
                f"not the URL of an upstream: {parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
            )
        port = parts.port if parts.port is not None else _DEFAULT_PORTS[parts.scheme]
        name = f"[{host}]" if ":" in host else host
        secure = parts.scheme == "https"
        return cls(
            host=host,
            port=port,
            ssl_context=_client_context(verify, ca_file) if secure else None,
            server_hostname=host if secure else None,
            path_prefix=parts.path.rstrip("/"),
            authority=name if port == _DEFAULT_PORTS[parts.scheme] else f"{name}:{port}",
        )

    @property
    def where(self) -> str:
        """host:port, for messages."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    async def places(self) -> list[Place]:
        """Return the addresses to try, best first.

        Raises:
            OSError, UnicodeError: the name is not found, or is no name.
        """
        return await self._names.find(self.host, self.port)

    def worked(self, place: Place) -> None:
        """Note that a connection to `place` came about."""
        self._names.prefer(place)

    def failed(self) -> None:
        """Note that none of the addresses answers."""
        self._names.forget()


def _literal(host: str) -> Place | None:
    """The place of a host that is an IP address."""
    try:
        version = ipaddress.ip_address(host).version
    except ValueError:
        return None
    return (socket.AF_INET6 if version == 6 else socket.AF_INET, host)


def _client_context(verify: bool, ca_file: Path | None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=ca_file)
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["http/1.1"])  # else a host may begin to speak HTTP/2
    context.options |= ssl.OP_NO_RENEGOTIATION  # so that a write never has to wait for a read
    return context
