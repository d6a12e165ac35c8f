"""The AG-UI stream: every event one JSON object on one line, in a right order."""

import json
from typing import Any

import pytest

from sse_proxy.demo.agui import agui_frames, question_of, run_error
from sse_proxy.demo.reader import parse_events

ANSWER = "One. Two!\n\nThree – 🎸.\n"


def events(frames: list[bytes]) -> list[dict[str, Any]]:
    assert all(frame.count(b"\n") == 2 and frame.endswith(b"\n\n") for frame in frames)
    return [json.loads(data) for _, data in parse_events(b"".join(frames))]


@pytest.mark.parametrize("chunks", ["743", "a826864"])
def test_a_run(chunks: str) -> None:
    got = events(agui_frames(ANSWER, "theory", thread_id="t", run_id="r", chunks=chunks))
    types = [event["type"] for event in got]
    assert types[:3] == ["RUN_STARTED", "STATE_SNAPSHOT", "STEP_STARTED"]
    assert types[-3:] == ["TEXT_MESSAGE_END", "STATE_DELTA", "RUN_FINISHED"]
    assert types.count("STEP_STARTED") == types.count("STEP_FINISHED")
    assert got[0] == {"type": "RUN_STARTED", "threadId": "t", "runId": "r"}
    assert len({event["messageId"] for event in got if "messageId" in event}) == 1
    deltas = [event["delta"] for event in got if event["type"] == "TEXT_MESSAGE_CONTENT"]
    assert all(deltas)
    assert "".join(deltas) == (ANSWER if chunks == "743" else "One.Two!Three – 🎸.")


def test_a_failed_run_ends_with_run_error() -> None:
    assert events([run_error()]) == [{"type": "RUN_ERROR", "message": "Failed to process message. Please try again."}]


@pytest.mark.parametrize(
    ("body", "question"),
    [
        ({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}, "a"),
        ({"messages": [{"role": "user", "content": "a"}, {"role": "user", "content": "c"}]}, "c"),
        ({"message": "d"}, "d"),
        ({"messages": [3, {"role": "user", "content": [1]}]}, ""),
        ({"messages": "e", "message": 4}, ""),
        ({}, ""),
    ],
)
def test_the_question_of_a_run(body: dict[str, Any], question: str) -> None:
    assert question_of(body) == question
