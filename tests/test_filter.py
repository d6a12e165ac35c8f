"""`sse-proxy fix`: the whole repair as a filter over bytes, as a shell sees it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sse_proxy.demo.wire import DONE, split_743, write_gaapi, write_gachatbot
from tests.core.streams import ROUTING, read_standard

ANSWER = "Use this:\n\n- one\n- two. Then:\n\ndata: x\n\nDone! 🎸"
BROKEN = b"".join(write_gaapi([ROUTING, *split_743(ANSWER), DONE]))
RIGHT = b"".join(write_gachatbot([ROUTING, *split_743(ANSWER), DONE]))
PLAIN = ["--dialect", "standard", "--payload", "opaque", "--split", "none", "--done", ""]
ERROR = b"event: error\ndata: "


def fix(raw: bytes, *arguments: str) -> tuple[bytes, int, str]:
    """Run the filter; return what it wrote, its exit status and its stderr."""
    run = subprocess.run(
        [sys.executable, "-m", "sse_proxy", "fix", *arguments], input=raw, capture_output=True, timeout=60, check=False
    )
    assert b"Traceback" not in run.stderr
    return run.stdout, run.returncode, run.stderr.decode()


@pytest.mark.parametrize("arguments", [(), ("--read-size", "1"), ("--dialect", "single-prefix"), ("--read-size", "7")])
def test_a_broken_stream_comes_out_right(arguments: tuple[str, ...]) -> None:
    assert fix(BROKEN, *arguments) == (RIGHT, 0, "")


def test_a_right_stream_comes_out_as_it_is() -> None:
    assert fix(RIGHT) == (RIGHT, 0, "")


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b"", "upstream_empty"),
        (b"\n\n", "upstream_empty"),
        (b"\x00\xff\xfe garbage \x80", "upstream_not_event_stream"),
        (os.urandom(2000).replace(b"d", b"").replace(b":", b""), "upstream_not_event_stream"),
        (b"<html></html>", "upstream_not_event_stream"),
        (b'{"error":"Service is busy"}', "upstream_error"),
        (BROKEN[:100], "upstream_empty"),  # half of the first event is none
        (RIGHT[: RIGHT.index(b"Then")], "upstream_incomplete"),
        (BROKEN[: BROKEN.index(b"Then")], "upstream_incomplete"),
        (BROKEN[:-20], "upstream_incomplete"),
    ],
)
def test_what_is_no_whole_stream_ends_in_an_error_event(raw: bytes, code: str) -> None:
    out, status, errors = fix(raw)
    assert (status, errors) == (1, "")
    assert out.count(ERROR) == 1
    event = read_standard(out)[0][-1]
    assert json.loads(event.data)["code"] == code
    assert out.endswith(b"\n\n")
    assert DONE not in [event.data for event in read_standard(out)[0]]


def test_the_host_s_own_message_is_kept_where_it_is_safe() -> None:
    assert b'"Service is busy"' in fix(b'{"error":"Service is busy"}')[0]
    assert b"srv" not in fix(b'{"error":"no /srv/model on 10.0.0.1:80"}')[0]


def test_done_empty_means_no_marker_and_no_events_of_our_own() -> None:
    assert fix(b"data: a\n\ndata: [DONE]\n\ndata: b\n\n", *PLAIN) == (b"data: a\n\ndata: [DONE]\n\ndata: b\n\n", 0, "")
    assert fix(b"", *PLAIN) == (b"", 0, "")
    assert fix(b"<html>", *PLAIN)[:2] == (b"", 1)
    assert fix(BROKEN[:-20], "--done", "")[1] == 0


def test_at_the_marker_it_stops_reading() -> None:
    """Where a sentence ends before it: else it may be text, and only the end of the input tells."""
    chunks = [ROUTING, "One\nmore. ", "Two.", DONE]
    reader, writer = os.pipe()
    with subprocess.Popen(
        [sys.executable, "-m", "sse_proxy", "fix"], stdin=reader, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        os.close(reader)
        os.write(writer, b"".join(write_gaapi(chunks)))  # and the pipe stays open
        try:
            out, errors = process.communicate(timeout=30)
        finally:
            os.close(writer)
    assert (out, process.returncode, errors) == (b"".join(write_gachatbot(chunks)), 0, b"")


def test_output_leaves_while_input_still_comes() -> None:
    at = BROKEN.index(b"Then")
    with subprocess.Popen(
        [sys.executable, "-m", "sse_proxy", "fix"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(BROKEN[: at + 4])
        process.stdin.flush()
        early = b""
        while b"two." not in early:  # ends with the test's own time limit, should nothing come
            early += os.read(process.stdout.fileno(), 65536)
        rest, _ = process.communicate(BROKEN[at + 4 :], timeout=60)
    assert early + rest == RIGHT
    assert process.returncode == 0


def test_a_reader_that_went_away_is_no_traceback(tmp_path: Path) -> None:
    source = tmp_path / "in.sse"
    source.write_bytes(b"".join(write_gachatbot(["A sentence. " * 100] * 3000)))
    reader, writer = os.pipe()
    with (
        source.open("rb") as stdin,
        subprocess.Popen(
            [sys.executable, "-m", "sse_proxy", "fix"], stdin=stdin, stdout=writer, stderr=subprocess.PIPE
        ) as process,
    ):
        os.close(writer)
        os.close(reader)
        _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (1, b"")


def test_the_report_is_one_line_of_json() -> None:
    out, status, errors = fix(BROKEN, "--report")
    assert (out, status) == (RIGHT, 0)
    assert errors.count("\n") == 1
    ledger = json.loads(errors)
    assert ledger["dialect"] == "single-prefix"
    assert ledger["outcome"] == "complete"
    assert ledger["bytes_in"] == len(BROKEN)
    assert ledger["bytes_out"] == len(RIGHT)
    assert ledger["text_chars"] == len(ANSWER)
    assert ledger["pieces"] == len(split_743(ANSWER))
    assert ledger["repairs"]["unprefixed_line"] >= 1
    failed = json.loads(fix(b"", "--report")[2])
    assert (failed["outcome"], failed["code"]) == ("failed", "upstream_empty")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--dialekt", "auto"], "--dialect"),
        (["--report", "--restore-whitespac"], "--restore-whitespace"),
        (["--dialect", "sse"], "single-prefix"),
        (["--split", "words"], "sentence"),
        (["--read-size", "0"], "--read-size"),
        (["--read-size", "x"], "--read-size"),
        (["file.sse"], "file.sse"),
    ],
)
def test_a_wrong_argument_is_refused_with_what_is_allowed(arguments: list[str], said: str) -> None:
    out, status, errors = fix(BROKEN, *arguments)
    assert (out, status) == (b"", 2)
    assert said in errors


def test_settings_are_options() -> None:
    raw = b"data: data: a\n\n" + b"data: One. Two\n\n"
    out, _, _ = fix(raw, "--strip-double-prefix", "--split", "none", "--done", "")
    assert out == b"data: a\n\ndata: One. Two\n\n"
    out, _, _ = fix(b"data: One.\ndata: Two\n\n", "--reader", "ga-client", "--done", "")
    assert out == b"data: One.\rT\n\ndata: wo\n\n"
