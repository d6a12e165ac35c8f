"""The query of a stream route: what is read, and what is refused."""

import pytest

from sse_proxy.demo.knobs import TWIN_FAILS, Fail, Knobs, UnknownKnob, read_knobs


def test_no_knobs() -> None:
    assert read_knobs("") == Knobs()
    assert read_knobs("fail=none") == Knobs()


def test_all_knobs() -> None:
    query = "host=gachatbot&chunks=a826864&fail=rst&delay=1500&pace=20&cut=7&packet=3"
    assert read_knobs(query) == Knobs("gachatbot", "a826864", Fail.RST, 1.5, 0.02, 7, 3)


def test_the_path_base_chooses_the_writer_and_the_query_overrules_it() -> None:
    assert read_knobs("", host="gachatbot").host == "gachatbot"
    assert read_knobs("host=gaapi", host="gachatbot").host == "gaapi"


def test_a_cut_alone_is_a_failure() -> None:
    assert read_knobs("cut=0") == Knobs(fail=Fail.CUT, cut=0)
    assert read_knobs("cut=9&fail=stall").fail is Fail.STALL


@pytest.mark.parametrize("fail", Fail)
def test_every_failure_can_be_asked_for_and_is_explained(fail: Fail) -> None:
    assert read_knobs(f"fail={fail}").fail is fail
    assert fail.about


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("fail=bogus", r"fail='bogus': allowed are none, 500, 503, .*, comment-only$"),
        ("host=iis", r"host='iis': allowed are gaapi, gachatbot$"),
        ("chunks=", r"chunks='': allowed are 743, a826864$"),
        ("delay=-1", r"delay='-1': allowed are whole numbers from 0 to 600000$"),
        ("delay=1_0", "allowed are whole numbers"),
        ("delay=٣", "allowed are whole numbers"),
        ("packet=0", "allowed are whole numbers from 1 to"),
        ("cut=" + "9" * 5000, "allowed are whole numbers"),
        ("colour=red", r"unknown knob 'colour': allowed are host, chunks, fail, delay, pace, cut, packet$"),
        ("&".join(["delay=1"] * 51), "more than 50 knobs"),
    ],
)
def test_what_is_refused_names_what_is_allowed(query: str, said: str) -> None:
    with pytest.raises(UnknownKnob, match=said):
        read_knobs(query)


def test_a_refusal_shows_little_of_what_was_sent() -> None:
    with pytest.raises(UnknownKnob) as caught:
        read_knobs("fail=" + "x" * 10_000)
    assert len(str(caught.value)) < 500


def test_the_twin_refuses_what_is_about_events() -> None:
    with pytest.raises(UnknownKnob, match="fail='after-marker': allowed are none, 500"):
        read_knobs("fail=after-marker", fails=TWIN_FAILS)
    assert Fail.HTML in TWIN_FAILS
