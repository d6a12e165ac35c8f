"""ga-client's readers and the desktop app: what each throws, drops and keeps."""

from __future__ import annotations

import pytest

from sse_proxy.core.readers import AgUiClient, ChatReader, DesktopApp, GaClientChatService, GaClientStreamChat, read_all

ROUTING = 'data: {"type":"routing","agentId":"v","confidence":1,"trace":{}}\n\n'


def read(kind: type[ChatReader], *packets: str) -> ChatReader:
    return read_all(kind(), map(str.encode, packets))


def chat_service(*packets: str) -> ChatReader:
    return read(GaClientChatService, *packets)


def test_chat_service_takes_the_first_data_line_trimmed() -> None:
    assert chat_service(ROUTING, "id: 1\ndata:\u00a0a\rb \ufeff\ndata: c\n\ndata:  \n\ndata: \x85\n\n").chunks == [
        "a\rb",
        "\x85",
    ]


def test_chat_service_reads_on_in_the_packet_of_the_marker_only() -> None:
    assert chat_service("data: a\n\ndata: [DONE]\n\ndata: b\n\n: x", "data: c\n\n").answer == "ab: x"
    assert chat_service("data: a\n\ndata: [DONE]\n\n", "data: b\n\n").answer == "a"


def test_chat_service_appends_what_is_left_over_and_calls_it_an_answer() -> None:
    reader = chat_service("data: Whole.\n\n", "data: hal")
    assert (reader.finished, reader.error, reader.stored) == (False, None, "Whole.data: hal")


def test_chat_service_loses_half_a_character_at_the_end() -> None:
    reader = read_all(GaClientChatService(), ["é".encode()[:1]])
    assert reader.stored == ""


@pytest.mark.parametrize("kind", [GaClientChatService, GaClientStreamChat])
@pytest.mark.parametrize(
    ("data", "error"),
    [
        ('{"error":"Busy."}', "Busy."),
        ('{"error":{"message":"x"}}', "[object Object]"),
        ('{"error":["a",["b",null]]}', "a,b,"),
        ('{"error":1.0}', "1"),
        ('{"error":[]}', ""),  # an empty array counts as true
        ("{no json", "not JSON: {no json"),
        ('{"a":NaN}', 'not JSON: {"a":NaN}'),
    ],
)
def test_ga_client_throws(kind: type[ChatReader], data: str, error: str) -> None:
    reader = read(kind, "data: Half. x\n\n", f"data: {data}\n\ndata: same packet\n\n", "data: more\n\n")
    assert (reader.error, reader.answer, reader.stored) == (error, "Half. x", None)


@pytest.mark.parametrize("kind", [GaClientChatService, GaClientStreamChat])
@pytest.mark.parametrize("data", ['{"error":""}', '{"error":0}', '{"error":null}', '{"a":1}'])
def test_ga_client_drops_objects_without_an_error_that_counts(kind: type[ChatReader], data: str) -> None:
    reader = read(kind, f"data: {data}\n\n", "data: a\n\n")
    assert (reader.error, reader.stored) == (None, "a")


def test_stream_chat_takes_every_line_and_never_knows_the_end() -> None:
    reader = read(GaClientStreamChat, ROUTING, "data: a \ndata:b\ndata: \ndata:  c\n\ndata: [DONE]\n\ndata: d\ndata: e")
    assert reader.chunks == ["a ", " c", "d"]
    assert (reader.finished, reader.stored) == (False, "a  cd")
    assert reader.routing == {"agentId": "v", "confidence": 1}


def delta(text: str) -> str:
    return f'data: {{"type":"TEXT_MESSAGE_CONTENT","delta":"{text}"}}\n\n'


def test_ag_ui_joins_deltas_and_skips_what_is_no_json() -> None:
    reader = read(
        AgUiClient,
        delta("a\\n"),
        "data: {bad\n\n: ping\n\ndata: 7\n\n",
        delta("b"),
        'data: {"type":"RUN_FINISHED"}\n\n',
    )
    assert (reader.answer, reader.finished, reader.stored) == ("a\nb", True, "a\nb")


def test_ag_ui_ends_at_an_error_event() -> None:
    reader = read(AgUiClient, delta("a"), 'data: {"type":"RUN_ERROR","message":"Busy."}\n\n' + delta("b"))
    assert (reader.error, reader.answer, reader.stored) == ("Busy.", "a", None)


def test_ag_ui_takes_an_end_without_run_finished_for_complete() -> None:
    reader = read(AgUiClient, delta("a"), delta("b").rstrip())
    assert (reader.finished, reader.error, reader.stored) == (False, None, "a")


def test_ag_ui_shows_a_missing_delta_as_javascript_does_and_throws_on_null() -> None:
    reader = read(AgUiClient, 'data: {"type":"TEXT_MESSAGE_CONTENT"}\n\n', "data: null\n\n")
    assert reader.answer == "undefined"
    assert reader.error is not None


def test_the_desktop_app_drops_bad_lines_and_waits_for_the_hang_up() -> None:
    reader = DesktopApp()
    for packet in (
        ': ping\n\ndata: {"choices":[{"delta":{"content":"a"}}]}\n\n',
        "data: {bad\r\n",
        delta("b"),
        "data: [DONE]\n\n",
    ):
        reader.feed(packet.encode())
    assert (reader.answer, reader.stopped, reader.stored) == ("ab", False, None)
    reader.close()
    assert (reader.finished, reader.stored) == (False, "ab")


def test_the_desktop_app_runs_into_its_timer_where_nobody_hangs_up() -> None:
    reader = DesktopApp()
    reader.feed(delta("a").encode() + b"data: [DONE]\n\n")
    reader.fail("timed out")
    assert (reader.error, reader.stored) == ("timed out", None)


@pytest.mark.parametrize("error", ['"Busy."', '{"message":"Busy.","type":"overloaded"}'])
def test_the_desktop_app_knows_an_error_object(error: str) -> None:
    assert read(DesktopApp, f'data: {{"error":{error}}}\n\n').error == "Busy."
