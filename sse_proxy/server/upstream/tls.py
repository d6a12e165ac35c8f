"""The TLS of one upstream connection, between its socket's bytes and ours; no sockets here.

Why not the loop's own TLS: with reading paused, uvloop drops what is deciphered when the peer hangs up, so a slow
reader would lose the end of an answer; asyncio does not tell an orderly end (close_notify) from a cut one, which is
the only mark a body without length has (RFC 9112 9.8); and neither lets us read on after a failed write.
"""

from __future__ import annotations

import ssl

__all__ = ["TlsChannel"]

_READ_BYTES = 256 * 1024


class TlsChannel:
    """One client connection's TLS.

    Attributes:
        established: the handshake is done and the certificate accepted.
        ended: the peer said that it sends no more (close_notify).
        fault: what broke it: a certificate, a version, a broken record; nothing can be read or sent any more.
    """

    __slots__ = ("_incoming", "_object", "_outgoing", "ended", "established", "fault")

    def __init__(self, context: ssl.SSLContext, server_hostname: str | None) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._object = context.wrap_bio(self._incoming, self._outgoing, server_hostname=server_hostname)
        self.established = self.ended = False
        self.fault: ssl.SSLError | None = None

    def receive(self, data: bytes) -> bytes:
        """Take bytes from the socket (none, to begin the handshake); return the plain text they complete.

        Afterwards `ended` or `fault` may be set (the text before it is returned still), and `outgoing` may have
        something to send, also at a fault: an alert tells the peer why.
        """
        self._incoming.write(data)
        plain: list[bytes] = []
        try:
            if not self.established:
                self._object.do_handshake()
                self.established = True
            while piece := self._object.read(_READ_BYTES):  # one record at a time
                plain.append(piece)
            self.ended = True
        except ssl.SSLWantReadError:
            pass  # the rest of a record is still to come
        except ssl.SSLError as exc:
            self.fault = exc
        return b"".join(plain)

    def send(self, data: bytes) -> bytes:
        """Return what goes to the socket for `data`; nothing after a fault. Only after the handshake."""
        try:
            self._object.write(data)
        except ssl.SSLError as exc:
            self.fault = self.fault or exc
            return b""
        return self._outgoing.read()

    def outgoing(self) -> bytes:
        """Return what TLS itself has to say to the peer; often nothing."""
        return self._outgoing.read()
