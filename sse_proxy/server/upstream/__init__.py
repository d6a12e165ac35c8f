"""The upstream side of a stream route: an HTTP/1.1 client for one streamed exchange, pushed not pulled.

    exchange = await connect(address, sink, connect_timeout=5)
    exchange.send_head("POST", "/chat", headers, chunked=True)
    exchange.write(body)
    await exchange.drain()
    exchange.write_eof()                       # and the sink hears: on_head, on_body, ..., on_end

- `address`: where an upstream is; made once for a configuration.
- `dial`: a connection, within a budget of time.
- `exchange`: one request and its response on that connection.
- `request`, `response`, `tls`: its parts, without sockets.

Every exchange has a connection of its own: a POST is never sent twice, and no pooled connection turns out to be stale.
It sends no `Connection: close`, since some servers answer that with a body without length, whose cut could not be told
from its end.
"""

from sse_proxy.server.upstream.address import UpstreamAddress
from sse_proxy.server.upstream.dial import connect
from sse_proxy.server.upstream.exchange import UpstreamExchange, UpstreamSink
from sse_proxy.server.upstream.response import ResponseHead

__all__ = ["ResponseHead", "UpstreamAddress", "UpstreamExchange", "UpstreamSink", "connect"]
