"""Messages: what a host said that a reader may see, and the error event that carries it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sse_proxy.core import StreamOptions
from sse_proxy.core.messages import error_event, is_showable
from sse_proxy.errors import FailureCode


@pytest.mark.parametrize(
    "message",
    [
        "Failed to process message. Please try again.",
        "Service is busy, try again later!",
        "Désolé, le service est occupé. Veuillez réessayer dans l'heure.",
        "服务繁忙，请稍后再试。",
        "Der Dienst ist überlastet – bitte später erneut versuchen.",
        "Quota exceeded: you have used all 20 requests (free plan).",
        "Unexpected error while answering",
    ],
)
def test_plain_sentences_are_shown(message: str) -> None:
    assert is_showable(message)


@pytest.mark.parametrize(
    "message",
    [
        "",
        "   ",
        "x" * 201,
        "<html><body>502 Bad Gateway</body></html>",
        "nginx <1>",
        "could not open /var/lib/model",
        r"C:\Users\svc\model missing",
        r"\\share\models",
        "see https:\\example",
        "connect to 10.0.0.12 failed",
        "connect to chat-7:5232 failed",
        "fe80::1 is down",
        "no route to gpu.internal",
        "localhost refused",
        "System.NullReferenceException: Object reference not set",
        "NullReferenceException while answering",
        "KeyError: 'message'",
        "Traceback (most recent call last)",
        "at line 42",
        "Errno 111",
        "file not found",
        "segfault at 0x7ffee",
        "user@example",
        "a = b; drop",
        "`rm`",
        "two\nlines",
        "bell\x07",
        "\u2028",
        "broken \ufffd",
        "token 0123456789abcdef0123456789abcdef expired",
        "${SECRET}",
        "{0}",
    ],
)
def test_what_tells_of_the_inside_is_hidden(message: str) -> None:
    assert not is_showable(message)


def test_a_known_message_is_shown_whatever_it_holds() -> None:
    known = ("No model at localhost:11434 <busy>",)
    assert is_showable(known[0], known)
    assert not is_showable(known[0] + "!", known)


@given(
    st.text(max_size=250), st.sampled_from(FailureCode), st.none() | st.integers(400, 599), st.none() | st.booleans()
)
def test_an_error_event_is_one_line_of_json(
    message: str, code: FailureCode, status: int | None, retryable: bool | None
) -> None:
    options = StreamOptions(request_id="r", known_messages=(message,), error_retry_ms=5000)
    event = error_event(options, code, message=message, status=status, retryable=retryable)
    assert "\n" not in event.data
    assert "\r" not in event.data
    assert (event.type, event.id, event.retry) == ("error", None, "5000")
    assert json.loads(event.data.encode()) == {
        "error": message,
        "code": str(code),
        "status": code.http_status if status is None else status,
        "retryable": code.retryable if retryable is None else retryable,
        "requestId": "r",
    }


def test_an_unsafe_message_gives_way_to_the_set_one() -> None:
    options = StreamOptions(error_message="Sorry.", error_event=None)
    event = error_event(options, FailureCode.INTERNAL, message="/etc/passwd")
    assert json.loads(event.data) == {"error": "Sorry.", "code": "internal", "status": 500, "retryable": True}
    assert event.plain


def test_half_a_character_becomes_a_replacement() -> None:
    event = error_event(StreamOptions(known_messages=("\ud83c",)), FailureCode.INTERNAL, message="\ud83c")
    assert json.loads(event.data.encode())["error"] == "\ufffd"


def test_readers_of_typed_objects_get_a_type() -> None:
    event = error_event(StreamOptions(error_types=("RUN_ERROR",)), FailureCode.TIMED_OUT)
    value = json.loads(event.data)
    assert (value["type"], value["message"]) == ("RUN_ERROR", value["error"])
