"""What the legacy host knows: a small fixed table from questions to answers, read from `answers/`.

Deterministic on purpose: the JSON twin and the stream must give the same answer to the same question, or no verdict
could be drawn from comparing them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

__all__ = ["ANSWERS", "Answer", "answer_for", "examples"]


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer of the host.

    Attributes:
        name: the file `answers/NAME.answer.txt`.
        agent_id: who answers, as the routing object says it.
        keywords: lower-case words; one of them in the question chooses this answer. Empty for the default.
        example: a question that chooses it.
    """

    name: str
    agent_id: str
    keywords: tuple[str, ...]
    example: str

    @property
    def text(self) -> str:
        """The answer with the line ends it has on the host's machine."""
        return _read(self.name)


@cache
def _read(name: str) -> str:
    # As bytes: reading text would turn the CRLFs of the Windows answer into LFs.
    return (files("sse_proxy.demo") / "answers" / f"{name}.answer.txt").read_bytes().decode()


# The first match wins, so the answer of the Windows host stands before the same answer with LFs.
ANSWERS: tuple[Answer, ...] = (
    Answer(
        "windows",
        "improvisation",
        ("windows", "crlf"),
        "Which arpeggio fits Am F C G, from a Windows host (CRLF)?",
    ),
    Answer(
        "sse-lesson",
        "theory",
        ("event stream", "event-stream", "eventsource", "sse", "server-sent"),
        "What is an event stream?",
    ),
    Answer(
        "improvisation",
        "improvisation",
        ("arpeggio", "arpeggios", "improvise", "improvisation", "solo", "scale", "scales"),
        "Which arpeggio fits Am F C G?",
    ),
    Answer(
        "voicings",
        "voicing",
        ("voicing", "voicings", "cmaj7", "fingering", "fingerings"),
        "Show me Cmaj7 voicings",
    ),
    Answer(
        "practice",
        "practice",
        ("practice", "practise", "plan", "exercise", "exercises", "routine"),
        "Give me a practice plan",
    ),
    Answer(
        "tables",
        "theory",
        ("diatonic", "table", "tables", "degree", "degrees", "chord", "chords", "key"),
        "Which chords are in G major?",
    ),
    Answer("help", "theory", (), "What can you do?"),
)


def answer_for(question: str) -> Answer:
    """Return the answer to `question`: the first whose keyword stands in it as a word, else the default."""
    asked = question.casefold()
    for answer in ANSWERS:
        if any(re.search(rf"(?<!\w){re.escape(word)}(?!\w)", asked) for word in answer.keywords):
            return answer
    return ANSWERS[-1]


def examples() -> list[str]:
    """Return one question for each answer, the lesson's two first."""
    lesson = ("improvisation", "voicings")
    return [answer.example for answer in sorted(ANSWERS, key=lambda answer: answer.name not in lesson)]
