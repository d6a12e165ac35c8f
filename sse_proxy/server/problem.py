"""Errors of our own on plain routes: RFC 9457 problem documents with the request id, and nothing of our insides."""

from __future__ import annotations

import json
from collections.abc import Iterable
from email.utils import formatdate
from http import HTTPStatus

from sse_proxy.errors import FailureCode, SSEProxyError, UpstreamError
from sse_proxy.server.exact import ExactResponse

__all__ = ["RequestRefused", "problem", "upstream_problem"]

# What a reader may know of an upstream's failure; the exception's own text goes to the log.
_DETAILS = {
    FailureCode.UPSTREAM_UNREACHABLE: "The server behind this address cannot be reached.",
    FailureCode.UPSTREAM_BAD_RESPONSE: "The server behind this address gave no valid answer.",
    FailureCode.UPSTREAM_STALLED: "The server behind this address did not answer in time.",
    FailureCode.UPSTREAM_TRUNCATED: "The server behind this address broke off its answer.",
}


class RequestRefused(SSEProxyError):
    """A request that is answered here, with a problem document, and never reaches an upstream.

    Attributes:
        status: the HTTP status of the answer.
        detail: one sentence for the client.
        headers: to be added to the answer (`Allow`, `Retry-After`).
        close: whether the connection ends with the answer, as it must where the request's own end is in doubt.
    """

    def __init__(
        self, status: int, detail: str, *, headers: Iterable[tuple[str, str]] = (), close: bool = False
    ) -> None:
        super().__init__(f"{status} {detail}")
        self.status = status
        self.detail = detail
        self.headers = list(headers)
        self.close = close


def problem(
    status: int,
    detail: str,
    *,
    request_id: str,
    code: str | None = None,
    headers: Iterable[tuple[str, str]] = (),
    close: bool = False,
) -> ExactResponse:
    """Build the answer: `application/problem+json` (RFC 9457), never stored by a cache.

    Args:
        code: a slug of the failures table, as in logs and metrics.
        close: end the connection after it.
    """
    title = _title(status)
    document: dict[str, object] = {"type": "about:blank", "title": title, "status": status, "detail": detail}
    if code is not None:
        document["code"] = code
    document["requestId"] = request_id
    body = json.dumps(document, ensure_ascii=False).encode() + b"\n"
    response = ExactResponse(
        status,
        title,
        [
            ("Date", formatdate(usegmt=True)),
            ("Content-Type", "application/problem+json"),
            ("Cache-Control", "no-store"),
            *headers,
            ("Content-Length", str(len(body))),
        ],
        body=body,
    )
    if close:
        response.force_close()
    return response


def upstream_problem(error: UpstreamError, *, request_id: str) -> ExactResponse:
    """Build the answer for an upstream that failed before its head was passed on (502 or 504)."""
    detail = _DETAILS.get(error.code, "The server behind this address failed.")
    return problem(error.code.http_status, detail, request_id=request_id, code=str(error.code))


def _title(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Error"
