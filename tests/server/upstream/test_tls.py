"""TLS between two buffers: fragments, ends and faults, without a socket."""

from __future__ import annotations

import ssl
from contextlib import suppress

import pytest

from sse_proxy.server.upstream.tls import TlsChannel
from tests.server.upstream.conftest import Certificate


class Server:
    """The other side, as plain as can be."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._in, self._out, server_side=True)

    def handshake(self, data: bytes) -> bytes:
        self._in.write(data)
        with suppress(ssl.SSLWantReadError):
            self.tls.do_handshake()
        return self._out.read()

    def cipher(self, *pieces: bytes, end: bool = False) -> bytes:
        for piece in pieces:
            self.tls.write(piece)
        if end:
            with pytest.raises(ssl.SSLWantReadError):
                self.tls.unwrap()
        return self._out.read()

    def plain(self, data: bytes) -> bytes:
        self._in.write(data)
        return self.tls.read(100_000)


def client_context(certificate: Certificate) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=certificate.ca_file)


def connected(certificate: Certificate, step: int = 100_000) -> tuple[TlsChannel, Server]:
    """Shake hands, the server's bytes arriving `step` at a time."""
    channel, server = TlsChannel(client_context(certificate), "localhost"), Server(certificate.server)
    assert channel.receive(b"") == b""
    for _ in range(5):
        reply = server.handshake(channel.outgoing())
        for at in range(0, len(reply), step):
            assert channel.receive(reply[at : at + step]) == b""
        if channel.established and not reply:
            break
    assert channel.established
    assert channel.fault is None
    return channel, server


@pytest.mark.parametrize("step", [1, 100_000])
def test_text_both_ways_wherever_the_records_are_cut(certificate: Certificate, step: int) -> None:
    channel, server = connected(certificate, step)
    assert server.plain(channel.send(b"question")) == b"question"
    wire = server.cipher(b"a" * 40_000, b"b", b"c" * 5)
    text = b"".join(channel.receive(wire[at : at + step]) for at in range(0, len(wire), step))
    assert text == b"a" * 40_000 + b"b" + b"c" * 5
    assert not channel.ended


def test_all_of_one_read_comes_at_once(certificate: Certificate) -> None:
    channel, server = connected(certificate)
    assert channel.receive(server.cipher(*[b"x" * 100] * 50)) == b"x" * 5000


def test_close_notify_is_the_end(certificate: Certificate) -> None:
    channel, server = connected(certificate)
    assert channel.receive(server.cipher(b"last words", end=True)) == b"last words"
    assert channel.ended
    assert channel.fault is None


def test_a_broken_record_is_a_fault_and_the_text_before_it_is_kept(certificate: Certificate) -> None:
    channel, server = connected(certificate)
    good, bad = server.cipher(b"good"), bytearray(server.cipher(b"bad"))
    bad[-1] ^= 1
    assert channel.receive(good + bytes(bad)) == b"good"
    assert channel.fault is not None
    assert not channel.ended
    assert channel.outgoing()  # an alert
    assert channel.send(b"more") == b""


def test_a_certificate_nobody_vouches_for_is_a_fault(certificate: Certificate) -> None:
    channel, server = TlsChannel(ssl.create_default_context(), "localhost"), Server(certificate.server)
    channel.receive(b"")
    channel.receive(server.handshake(channel.outgoing()))
    assert isinstance(channel.fault, ssl.SSLCertVerificationError)
    assert not channel.established
    assert channel.outgoing()


def test_a_certificate_for_another_name_is_a_fault(certificate: Certificate) -> None:
    channel, server = TlsChannel(client_context(certificate), "elsewhere.example"), Server(certificate.server)
    channel.receive(b"")
    channel.receive(server.handshake(channel.outgoing()))
    assert isinstance(channel.fault, ssl.SSLCertVerificationError)


def test_what_is_not_tls_is_a_fault(certificate: Certificate) -> None:
    channel = TlsChannel(client_context(certificate), "localhost")
    channel.receive(b"")
    assert channel.receive(b"HTTP/1.1 400 Bad Request\r\n\r\n") == b""
    assert channel.fault is not None
