"""Answer a stream that is not admitted: its 503, with the error event as body (design section 6)."""

from __future__ import annotations

from email.utils import formatdate

from aiohttp import web

from sse_proxy.core.pipeline import Pipeline
from sse_proxy.errors import AdmissionRefused
from sse_proxy.server.disposition import stream_headers
from sse_proxy.server.exact import ExactResponse
from sse_proxy.server.services import Services, StreamRoute

__all__ = ["refuse_stream"]


async def refuse_stream(
    request: web.BaseRequest, route: StreamRoute, services: Services, request_id: str, refusal: AdmissionRefused
) -> web.StreamResponse:
    """Answer with the refusal's status and `Retry-After`, and count it as a stream that failed."""
    pipeline = Pipeline(route.settings.options(request_id=request_id, method=request.method))
    body = pipeline.fail(refusal.code)
    origin = request.headers.get("Origin", "")
    headers = [
        *stream_headers([("Date", formatdate(usegmt=True)), *route.cors.own(origin)]),
        ("Retry-After", str(refusal.retry_after_s)),
        ("Content-Length", str(len(body))),
    ]
    services.metrics.observe_stream(route.upstream.name, route.name, pipeline.ledger)
    response = ExactResponse(refusal.code.http_status, None, headers, body=body)
    if request.body_exists and not request.content.is_eof():
        response.force_close()  # where the next request begins is not known
    await response.prepare(request)
    await response.write_eof()
    return response
