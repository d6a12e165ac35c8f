"""Open the connection of one exchange, within one budget of time."""

from __future__ import annotations

import asyncio

from sse_proxy.errors import UpstreamUnreachable
from sse_proxy.server.upstream.address import Place, UpstreamAddress
from sse_proxy.server.upstream.exchange import UpstreamExchange, UpstreamSink

__all__ = ["connect"]

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.02, 0.5  # between two attempts while the connection is refused


async def connect(
    upstream: UpstreamAddress, sink: UpstreamSink, *, connect_timeout: float, max_head: int = 64 * 1024
) -> UpstreamExchange:
    """Open a connection for one exchange.

    While the connection is refused it is tried again: a sidecar often starts before its host. A name that is not found
    and a TLS that does not come about fail at once.

    Args:
        sink: hears nothing before `send_head` has returned.
        connect_timeout: seconds for all of it: name, attempts, TLS.
        max_head: largest response head, in bytes.

    Raises:
        UpstreamUnreachable: no connection within that time. No socket is left then, nor after a cancellation.
    """
    deadline = asyncio.get_running_loop().time() + connect_timeout
    refused: ConnectionRefusedError | None = None
    pause_s = _FIRST_PAUSE_S
    try:
        async with asyncio.timeout_at(deadline):
            while True:
                try:
                    return await _try_all(upstream, sink, max_head, deadline)
                except ConnectionRefusedError as exc:
                    refused = exc
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
    except TimeoutError:
        how = "does not answer" if refused is None else "refuses connections"
        raise UpstreamUnreachable(f"{upstream.where} {how}; gave up after {connect_timeout:g} s") from refused


async def _try_all(upstream: UpstreamAddress, sink: UpstreamSink, max_head: int, deadline: float) -> UpstreamExchange:
    """Try every address of the upstream once.

    Raises:
        ConnectionRefusedError: one of them at least refused, and none accepted.
        UpstreamUnreachable: whatever else went wrong.
    """
    try:
        places = await upstream.places()
    except (OSError, UnicodeError) as exc:
        raise UpstreamUnreachable(f"{upstream.where}: the name is not found ({exc})") from exc
    now = asyncio.get_running_loop().time
    faults: list[OSError] = []
    for left, place in zip(range(len(places), 0, -1), places, strict=True):
        # One address that swallows everything (IPv6 through a bad tunnel) must not use up the time of the others.
        share = None if left == 1 else max(0.0, deadline - now()) / left
        exchange = UpstreamExchange(upstream, sink, max_head)
        try:
            await _open(exchange, upstream, place, share)
        except OSError as exc:
            faults.append(exc)
        else:
            return exchange
    upstream.failed()
    for fault in faults:
        if isinstance(fault, ConnectionRefusedError):
            raise fault
    reasons = "; ".join(dict.fromkeys(str(fault) or "no answer" for fault in faults))
    raise UpstreamUnreachable(f"{upstream.where} cannot be reached: {reasons}") from faults[0]


async def _open(exchange: UpstreamExchange, upstream: UpstreamAddress, place: Place, share: float | None) -> None:
    """Connect `exchange` to one address; it is closed when that fails, or is cancelled.

    Args:
        share: seconds for the TCP connection; None: no limit of its own.

    Raises:
        OSError: no TCP connection; TimeoutError among them.
        UpstreamUnreachable: no TLS on it.
    """
    family, host = place
    try:
        async with asyncio.timeout(share):
            await asyncio.get_running_loop().create_connection(lambda: exchange, host, upstream.port, family=family)
        upstream.worked(place)
        await exchange.established()
    except BaseException:
        exchange.close()
        raise
