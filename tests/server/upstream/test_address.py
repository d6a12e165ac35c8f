"""What the URL of an upstream says, and which addresses its name stands for."""

from __future__ import annotations

import asyncio
import socket
import ssl
from pathlib import Path

import pytest

from sse_proxy.config import config_for_upstream
from sse_proxy.server.upstream.address import UpstreamAddress
from tests.server.upstream.conftest import Certificate


@pytest.mark.parametrize(
    ("url", "host", "port", "authority", "prefix", "where"),
    [
        ("http://localhost:5232", "localhost", 5232, "localhost:5232", "", "localhost:5232"),
        ("http://Host.Example", "host.example", 80, "host.example", "", "host.example:80"),
        ("http://host.example:80/", "host.example", 80, "host.example", "", "host.example:80"),
        ("http://host.example:443/a/b/", "host.example", 443, "host.example:443", "/a/b", "host.example:443"),
        ("https://host.example:443/a%2Fb", "host.example", 443, "host.example", "/a%2Fb", "host.example:443"),
        ("https://host.example:80", "host.example", 80, "host.example:80", "", "host.example:80"),
        ("http://[::1]:5232", "::1", 5232, "[::1]:5232", "", "[::1]:5232"),
        ("http://[::1]", "::1", 80, "[::1]", "", "[::1]:80"),
        ("http://127.0.0.1:1", "127.0.0.1", 1, "127.0.0.1:1", "", "127.0.0.1:1"),
    ],
)
def test_the_parts_of_a_url(url: str, host: str, port: int, authority: str, prefix: str, where: str) -> None:
    address = UpstreamAddress.from_url(url)
    assert (address.host, address.port, address.authority) == (host, port, authority)
    assert (address.path_prefix, address.where) == (prefix, where)
    assert (address.ssl_context is None) is (address.server_hostname is None) is url.startswith("http:")
    assert address.server_hostname in (None, host)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "localhost:80",
        "ftp://x",
        "http://",
        "http://x:port",
        "http://x:99999",
        "http://x?a=b",
        "http://x#a",
        "http://u:secret@x",
    ],
)
def test_what_is_no_upstream_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"\S") as caught:
        UpstreamAddress.from_url(url)
    assert "secret" not in str(caught.value)


def test_from_the_configuration() -> None:
    upstream = config_for_upstream("http://localhost:5232").upstreams[0]
    assert UpstreamAddress.from_config(upstream) == UpstreamAddress.from_url("http://localhost:5232")


def test_tls_settings(certificate: Certificate, tmp_path: Path) -> None:
    strict = UpstreamAddress.from_url("https://x", ca_file=certificate.ca_file).ssl_context
    assert strict is not None
    assert strict.verify_mode is ssl.CERT_REQUIRED
    assert strict.check_hostname
    assert strict.get_ca_certs()[0]["subject"] == ((("commonName", "localhost"),),)
    loose = UpstreamAddress.from_url("https://x", verify=False).ssl_context
    assert loose is not None
    assert loose.verify_mode is ssl.CERT_NONE
    with pytest.raises(OSError, match="No such file"):
        UpstreamAddress.from_url("https://x", ca_file=tmp_path / "missing.pem")


async def test_an_ip_address_is_not_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    names = _Names([])
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: names)
    for url, place in (
        ("http://127.0.0.1:1", (socket.AF_INET, "127.0.0.1")),
        ("http://[::1]", (socket.AF_INET6, "::1")),
    ):
        address = UpstreamAddress.from_url(url)
        for _ in range(2):
            assert await address.places() == [place]
            address.worked(place)
            names.now += 1000
        address.failed()
        assert await address.places() == [place]
    assert names.asked == 0


async def test_a_name_is_looked_up() -> None:
    assert (socket.AF_INET, "127.0.0.1") in await UpstreamAddress.from_url("http://localhost:1").places()


class _Names:
    """Stands for a loop: a clock, and what a name resolves to."""

    def __init__(self, *answers: list[str]) -> None:
        self.now = 100.0
        self.answers = list(answers)
        self.asked = 0

    def time(self) -> float:
        return self.now

    async def getaddrinfo(self, host: str, port: int, *, type: int) -> list[tuple[int, int, int, str, tuple[str, int]]]:
        self.asked += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return [(socket.AF_INET, type, 6, "", (address, port)) for address in answer]


async def test_names_are_kept_for_a_while_and_the_good_address_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    names = _Names(["1.1.1.1", "2.2.2.2", "2.2.2.2"], ["3.3.3.3", "2.2.2.2"], ["4.4.4.4"])
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: names)
    address = UpstreamAddress.from_url("http://host.example")

    async def places() -> list[str]:
        return [ip for _, ip in await address.places()]

    assert await places() == ["1.1.1.1", "2.2.2.2"]
    address.worked((socket.AF_INET, "2.2.2.2"))
    address.worked((socket.AF_INET, "9.9.9.9"))  # not one of them any more
    names.now += 9.9
    assert await places() == ["2.2.2.2", "1.1.1.1"]
    assert names.asked == 1
    names.now += 0.2
    assert await places() == ["2.2.2.2", "3.3.3.3"]
    address.failed()
    assert await places() == ["4.4.4.4"]
    assert names.asked == 3


async def test_a_name_without_addresses_is_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: _Names([]))
    with pytest.raises(OSError, match="no address"):
        await UpstreamAddress.from_url("http://host.example").places()
