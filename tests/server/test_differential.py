"""The same raw requests straight to an upstream, through nginx, and through the proxy: what differs, and why.

Every difference between the straight way and ours must stand in `ACCEPTED` (of a kind that any request may show) or in
`REFUSED` (a request that we do not pass on at all), each with its reason; and every line there must be seen, so that
the tables cannot outlive what they describe. nginx (`proxy_pass` with its defaults off) shows what people are used to:
what it changes is computed the same way, and `NGINX` names it.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.fakes import parse_response
from tests.server.differential import NGINX_BINARY, Case, Recorder, differences, generated, hand_picked, nginx, through
from tests.server.front import proxy

# --- the tables ---------------------------------------------------------------------------------------------------

# Kinds of differences between the straight way and the way through the proxy: pattern -> reason.
ACCEPTED = {
    r"request \+(x-forwarded-(for|proto|host)|forwarded)": "who asked, told once (design section 7)",
    r"request -(x-forwarded-for|x-forwarded-proto|x-forwarded-host|forwarded|x-forwarded-prefix)": (
        "what an untrusted peer says of itself is replaced or removed"
    ),
    r"request -expect": "100-continue is answered here, and not waited for a second time upstream",
    r"request -named": "a header that Connection names is for this hop only (RFC 9110 7.6.1)",
    r"request version": "the upstream is spoken to in HTTP/1.1, whatever the client speaks",
    r"request target": "of an absolute-form target path and query go on: the authority is not the client's to choose",
    r"request [-+]host": "the authority of an absolute-form target counts; HTTP/1.1 needs one (RFC 9112 3.2)",
    r"answer version": "we answer in HTTP/1.1, whatever the upstream speaks",
    r"answer -content-length": "a 204 has no body, and one that claims to have would be waited for",
    r"answer -trailer": "fields behind a chunked body are not passed on, and so not announced",
    r"(request|answer) trailers": "fields behind a chunked body are not passed on: aiohttp does not tell them",
    r"answer interim": "100 is told by each hop for itself; 103 is not passed on: aiohttp does not tell it",
}

# Requests that never reach the upstream: case -> (status, reason).
REFUSED = {
    "raw utf-8 in the target": (400, "raw non-ASCII bytes in a target (design section 7)"),
    "raw latin-1 in the target": (400, "raw non-ASCII bytes in a target (design section 7)"),
    "a fragment in the target": (400, "a fragment is never sent (RFC 9112 3.2)"),
    "an unknown method": (400, "aiohttp's parser knows the registered methods only"),
    "a lower-case method": (400, "methods are case-sensitive, and none is lower-case"),
    "two user agents": (400, "aiohttp's parser refuses a second value of a header that has but one"),
    "two content types": (400, "aiohttp's parser refuses a second value of a header that has but one"),
    "a folded header": (400, "obsolete line folding (RFC 9112 5.2)"),
    "bare line feeds": (400, "lines end in CRLF; two readers could cut such a head in two ways"),
    "a space before the colon": (400, "RFC 9112 5.1 demands it: it is a way to smuggle"),
    "a control character in a value": (400, "RFC 9110 5.5"),
    "another transfer coding": (501, "RFC 9112 6.1: a coding we do not speak"),
    "chunked from a 1.0 client": (400, "RFC 9112 6.1: faulty framing"),
    "both framings": (400, "request smuggling (RFC 9112 6.3)"),
    "two lengths": (400, "request smuggling (RFC 9112 6.3)"),
    "no host": (400, "RFC 9112 3.2 demands it"),
    "a host that is none": (400, "it goes into headers that others build links from"),
    "another expectation": (417, "RFC 9110 10.1.1"),
    "CONNECT": (405, "no tunnels"),
    "a head of 70 KB": (431, "max_header"),
    "answered with both framings": (502, "response splitting (RFC 9112 6.3)"),
    "answered with two lengths": (502, "response splitting (RFC 9112 6.3)"),
    "answered with another transfer coding": (502, "a coding that was not asked for, and cannot be passed on"),
    "answered with a control character": (502, "RFC 9110 5.5"),
    "answered with more than its length": (502, "where the next answer begins is not certain; aiohttp drops it all"),
}

# What nginx changes of the same requests; kept short of details, as it is here to compare with only.
NGINX = (
    r"request (version|target|order|case|-expect|-named|[-+](host|content-length))",
    r"(request|answer) trailers",
    r"answer (version|order|case|reason|body|interim)",
    r"answer [-+](content-length|content-type|accept-ranges|date|server|trailer|etag)",
    r"answer status \d+ -> \d+",
    r"not reached",
)

CASES = [*generated(340), *hand_picked()]


def test_there_are_enough_cases() -> None:
    assert len(CASES) > 400
    assert len({case.name for case in CASES}) == len(CASES)


def kind_of(kind: str, case: Case) -> str:
    """Name a header that this case's Connection names."""
    return "request -named" if case.name == "named by Connection" and kind == "request -x-named" else kind


async def test_nothing_differs_but_what_the_tables_say() -> None:
    used: set[str] = set()
    refused: set[str] = set()
    wrong: list[str] = []
    async with Recorder().listen() as recorder:
        settings = {"host_header": "client"}
        async with proxy(
            f"http://127.0.0.1:{recorder.port}", settings=settings, limits={"lingering_time": 0.05}
        ) as site:
            for case in CASES:
                straight = await through(case, recorder, "straight", recorder.port)
                ours = await through(case, recorder, "proxy", site.port or 0)
                kinds = [kind_of(kind, case) for kind in differences(case, "proxy", straight, ours)]
                if case.name in REFUSED:
                    status = parse_response(ours)[0]
                    assert b"application/problem+json" in ours
                    if status != REFUSED[case.name][0]:
                        wrong.append(f"{case.name}: {status}, not {REFUSED[case.name][0]}")
                    if status < 500 and case.seen.get("proxy"):
                        wrong.append(f"{case.name}: reached the upstream")
                    refused.add(case.name)
                    continue
                for kind in kinds:
                    match = next((pattern for pattern in ACCEPTED if re.fullmatch(pattern, kind)), None)
                    if match is None:
                        wrong.append(f"{case.name}: {kind}")
                    else:
                        used.add(match)
    assert not wrong, "\n".join(wrong)
    assert refused == set(REFUSED)
    assert used == set(ACCEPTED), f"never seen: {set(ACCEPTED) - used}"


@pytest.mark.nginx
@pytest.mark.skipif(NGINX_BINARY is None, reason="nginx is not installed")
async def test_nginx_changes_more(tmp_path: Path) -> None:
    """The harness sees differences where they are: nginx's are known, and more than ours on what both pass on."""
    ours = theirs = 0
    wrong: list[str] = []
    async with Recorder().listen() as recorder, nginx(recorder.port, tmp_path) as port:
        settings = {"host_header": "client"}
        async with proxy(
            f"http://127.0.0.1:{recorder.port}", settings=settings, limits={"lingering_time": 0.05}
        ) as site:
            for case in CASES:
                if case.name in REFUSED:
                    continue
                straight = await through(case, recorder, "straight", recorder.port)
                passed = await through(case, recorder, "nginx", port)
                kinds = [kind_of(kind, case) for kind in differences(case, "nginx", straight, passed)]
                wrong += [f"{case.name}: {k}" for k in kinds if not any(re.fullmatch(p, k) for p in NGINX)]
                theirs += len(kinds)
                mine = differences(case, "proxy", straight, await through(case, recorder, "proxy", site.port or 0))
                ours += len([kind for kind in mine if not re.fullmatch(r"request \+.*forwarded.*", kind)])
    assert not wrong, "\n".join(wrong)
    assert ours < theirs / 4, (ours, theirs)
