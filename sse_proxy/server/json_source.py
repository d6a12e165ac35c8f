"""`source: json`: the same stream from the host's JSON twin, exact for every version of the host (design section 4)."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from sse_proxy.config import JsonSource
from sse_proxy.core.head import host_message
from sse_proxy.errors import FailureCode

__all__ = ["TwinAnswer", "TwinFailure", "read_twin"]


_INDEX = re.compile(r"0|[1-9][0-9]{0,8}")  # RFC 6901 section 4


@dataclass(frozen=True, slots=True)
class TwinAnswer:
    """A whole answer.

    Attributes:
        meta: the first event's data: the routing object, as JSON text.
        answer: the answer's text.
    """

    meta: str
    answer: str


@dataclass(frozen=True, slots=True)
class TwinFailure:
    """No answer.

    Attributes:
        message: what the host said, not yet checked for safety.
    """

    code: FailureCode
    message: str
    detail: str


def read_twin(body: bytes, settings: JsonSource) -> TwinAnswer | TwinFailure:
    """Read the twin's reply (status 200)."""
    detail = body[:2048].decode("utf-8", "replace")
    try:
        reply: Any = json.loads(body, parse_constant=_refuse, parse_float=_finite)
    except (ValueError, RecursionError):
        return TwinFailure(FailureCode.UPSTREAM_NOT_EVENT_STREAM, "", detail)
    if isinstance(reply, dict) and (message := host_message(reply)) is not None:
        return TwinFailure(FailureCode.UPSTREAM_ERROR, message, detail)
    answer = _at(reply, settings.answer)
    if not isinstance(answer, str):
        where = settings.answer or "the reply itself"
        return TwinFailure(FailureCode.UPSTREAM_BAD_RESPONSE, "", f"no text at json.answer ({where}): {detail}")
    meta: dict[str, Any] = dict(settings.meta)
    if isinstance(reply, dict):
        top = settings.answer[1:].split("/", 1)[0].replace("~1", "/").replace("~0", "~")
        omitted = {top, *settings.omit}
        meta.update({key: value for key, value in reply.items() if key not in omitted})
    return TwinAnswer(json.dumps(meta, ensure_ascii=False, separators=(",", ":")) if meta else "", answer)


def _finite(text: str) -> float | None:
    """Return a number; None for one that is beyond a double (1e999), which JSON could not say again."""
    value = float(text)
    return value if math.isfinite(value) else None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _at(value: Any, pointer: str) -> Any:
    """Return what a JSON pointer (RFC 6901) names; None where there is nothing."""
    for token in pointer.split("/")[1:]:
        token = token.replace("~1", "/").replace("~0", "~")
        if isinstance(value, Mapping):
            value = value.get(token)
        elif isinstance(value, list) and _INDEX.fullmatch(token) and int(token) < len(value):
            value = value[int(token)]
        else:
            return None
    return value
