"""The demo's standard reader, in Python and in the page's JavaScript."""

import base64
import json
import random
import re
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from sse_proxy.core.verdict import judge, lost_lines
from sse_proxy.demo.reader import Reading, parse_events, read_answer

WIRE = Path(__file__).parents[1] / "vectors" / "wire"
ODD = (
    "\ufeffdata: première\r\ndata:ligne\r\n\r\n: ping\r\rdata\n\nevent: x\nid: 7\n\nevent: y\ndata:  two spaces\n\n"
    "unknown: z\ndata: a\x00\n\ndata: not dispatched\n"
).encode() + b"data: \xff\n"


def test_the_five_rules() -> None:
    assert parse_events(ODD) == [
        ("message", "première\nligne"),
        ("message", ""),
        ("y", " two spaces"),
        ("message", "a\x00"),
    ]


ROUTING = b'data: {"type":"routing","agentId":"a"}\n\n'


@pytest.mark.parametrize(
    ("raw", "reading"),
    [
        (b"", Reading("", 0, False, None)),
        (ROUTING + b"data: a\n\ndata:  [DONE] \n\ndata: b\n\n", Reading("a", 3, True, None)),
        (b"data: a\n\n" + ROUTING, Reading('a{"type":"routing","agentId":"a"}', 2, False, None)),
        (b'data: a\n\ndata: {"error":"busy"}\n\n', Reading("a", 2, False, "busy")),
        (b'data: {"error":"busy"}\n\ndata: [DONE]\n\n', Reading('{"error":"busy"}', 2, True, None)),
        (b'event: error\ndata: {"error":"x","code":"upstream_stalled"}\n\n', Reading("", 1, False, "upstream_stalled")),
        (b"event: error\ndata: plain\n\n", Reading("", 1, False, "error")),
        (b"data: {not json\n\ndata: [1]\n\n", Reading("{not json[1]", 2, False, None)),
        (b"data: {" + b'"a":{' * 5000 + b"\n\n", Reading("{" + '"a":{' * 5000, 1, False, None)),
    ],
)
def test_read_answer(raw: bytes, reading: Reading) -> None:
    assert read_answer(raw) == reading
    assert read_answer(raw).failed == (not reading.done)


@pytest.mark.parametrize(
    ("wire", "said"),
    [
        ("a826864.gachatbot", "6 line breaks missing"),
        ("743.gachatbot", "exact"),
        ("a826864.gaapi", "1 of 6 lines missing, 8 line breaks missing"),
        ("743.gaapi", "1 of 6 lines missing, 8 line breaks missing"),
    ],
)
@pytest.mark.parametrize("name", ["improvisation", "windows"])
def test_the_lessons_table_for_a_standard_reader(name: str, wire: str, said: str) -> None:
    answer = (WIRE / f"{name}.answer.txt").read_bytes().decode()
    assert str(judge(answer, read_answer((WIRE / f"{name}.{wire}.sse").read_bytes()).text)) == said


HARNESS = """
const cases = JSON.parse(require("fs").readFileSync(0, "utf-8"));
console.log(JSON.stringify(cases.map(({parts, answer, got}) => {
  const reader = new EventStreamReader();
  const events = parts.flatMap((part) => reader.feed(Buffer.from(part, "base64")));
  return [events.map(({type, data}) => [type, data]), verdict(answer, got).words, lostLines(answer, got)];
})));
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_the_page_reads_and_counts_as_we_do(tmp_path: Path) -> None:
    page = (files("sse_proxy.demo") / "page.html").read_text(encoding="utf-8")
    found = re.search(r'<script type="module">\nimport [^\n]*\n(.*?)// ---- one pane', page, re.DOTALL)
    assert found is not None
    (tmp_path / "page.cjs").write_text('"use strict";\n' + found[1] + HARNESS, encoding="utf-8")
    rng = random.Random(743)
    cases: list[dict[str, Any]] = []
    expected: list[list[Any]] = []
    for path in sorted(WIRE.glob("*.sse")):
        raw = path.read_bytes()
        answer = (WIRE / f"{path.name.split('.')[0]}.answer.txt").read_bytes().decode()
        for cut in (raw, raw[: rng.randrange(len(raw))], ODD, raw.replace(b"\n", b"\r\n"), raw.replace(b"\n", b"\r")):
            cuts = sorted(rng.sample(range(len(cut) + 1), min(9, len(cut))))
            parts = [cut[a:b] for a, b in zip([0, *cuts], [*cuts, len(cut)], strict=True)]
            if cut == ODD:
                parts = [bytes([byte]) for byte in cut]
            got = read_answer(cut).text
            cases.append({"parts": [base64.b64encode(part).decode() for part in parts], "answer": answer, "got": got})
            events = [[event_type, data] for event_type, data in parse_events(cut)]
            expected.append([events, str(judge(answer, got)), lost_lines(answer, got)])
    run = subprocess.run(
        ["node", str(tmp_path / "page.cjs")], input=json.dumps(cases), capture_output=True, text=True, timeout=60
    )
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout) == expected
