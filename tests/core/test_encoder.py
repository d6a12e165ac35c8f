"""The encoder, the keep-alive clock and the ledger: what is written, when, and what is told of it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sse_proxy.core import Ledger, Outcome, Reader, RepairKind
from sse_proxy.core.encoder import Encoder, well_formed
from sse_proxy.core.events import Comment, Event, Item, LastEventId, ReconnectionTime
from sse_proxy.core.keepalive import KeepAlive
from sse_proxy.errors import FailureCode
from tests.core.streams import SseEvent, read_standard

DATA = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r"), max_size=20)
NAME = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n\0"), min_size=1, max_size=5)
EVENTS = st.builds(
    Event, DATA, st.one_of(st.just(""), NAME), st.none() | NAME, st.none() | st.integers(0, 9999).map(str)
)


@given(st.lists(EVENTS, max_size=5))
def test_a_standard_reader_gets_back_what_was_written(events: list[Event]) -> None:
    raw = Encoder(Reader.STANDARD).encode(list(events))
    got, retry, last_id = read_standard(raw)
    assert [(event.data, event.type) for event in got] == [(event.data, event.type or "message") for event in events]
    ids = [event.id for event in events if event.id is not None]
    assert last_id == (ids[-1] if ids else "")
    retries = [event.retry for event in events if event.retry is not None]
    assert retry == (retries[-1] if retries else None)
    assert not raw or raw.endswith(b"\n\n")


@pytest.mark.parametrize(
    ("item", "raw"),
    [
        (Event(""), b"data: \n\n"),
        (Event("a\n\nb\n"), b"data: a\ndata: \ndata: b\ndata: \n\n"),
        (Event("a", "t", "1", "2"), b"event: t\nid: 1\nretry: 2\ndata: a\n\n"),
        (Event("a", id=""), b"id: \ndata: a\n\n"),
        (Comment(" ping"), b": ping\n\n"),
        (LastEventId("7"), b"id: 7\n\n"),
        (ReconnectionTime("10"), b"retry: 10\n\n"),
    ],
)
def test_how_each_item_is_written(item: Item, raw: bytes) -> None:
    assert Encoder(Reader.STANDARD).encode([item]) == raw


def test_ga_clients_get_one_line_with_cr() -> None:
    assert Encoder(Reader.GA_CLIENT).encode([Event("a\n\nb")]) == b"data: a\r\rb\n\n"


def test_a_comment_may_go_without_its_blank_line() -> None:
    encoder = Encoder(Reader.STANDARD, comment_blank_line=False)
    assert encoder.encode([Comment("x"), Event("a")]) == b":x\ndata: a\n\n"
    assert [event.data for event in read_standard(encoder.encode([Comment("x"), Event("a")]))[0]] == ["a"]


@pytest.mark.parametrize(("text", "whole"), [("a", "a"), ("\ud83c\udfb8", "🎸"), ("x\ud83c", "x\ufffd"), ("", "")])
def test_surrogates_are_joined_or_replaced(text: str, whole: str) -> None:
    assert well_formed(text) == whole


def test_a_field_with_an_empty_value_is_read_back() -> None:
    assert read_standard(b"id: 1\ndata: a\n\nid: \ndata: b\n\n")[0] == [SseEvent("a", id="1"), SseEvent("b")]


# ---- keep-alive ----


def test_a_keepalive_is_due_after_silence_alone() -> None:
    clock = KeepAlive(15, now=100)
    assert not clock.is_due(114.9)
    assert clock.is_due(115)
    clock.wrote(110)
    assert not clock.is_due(124.9)
    assert clock.due_at == 125
    assert clock.is_due(126)


def test_without_an_interval_none_is_ever_due() -> None:
    clock = KeepAlive(None, now=0)
    clock.wrote(5)
    assert clock.due_at is None
    assert not clock.is_due(1e9)


# ---- ledger ----


def test_the_ledger_is_one_json_object_in_its_order() -> None:
    ledger = Ledger(dialect="auto", outcome=Outcome.FAILED, code=FailureCode.TIMED_OUT, log_detail="secret")
    ledger.repair(RepairKind.UNPREFIXED_LINE, 2)
    ledger.repair(RepairKind.BOM)
    ledger.repair(RepairKind.BOM, 0)
    ledger.repair(RepairKind.NUL_ID, 0)
    value = json.loads(json.dumps(ledger.as_dict()))
    order = "dialect outcome code bytes_in bytes_out frames_in events_out pieces text_chars repairs dropped_bytes"
    assert " ".join(value) == f"{order} keepalives first_text_s duration_s"
    assert value["repairs"] == {"bom": 1, "unprefixed_line": 2}
    assert (value["outcome"], value["code"]) == ("failed", "timed_out")
    assert "secret" not in str(value)


def test_a_stream_that_runs_has_no_outcome() -> None:
    assert Ledger().as_dict()["outcome"] is None
    assert Ledger().as_dict()["code"] is None
