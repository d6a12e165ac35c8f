"""Everything that a configuration may have wrong: which line says so, word by word, and that nothing else is raised."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from sse_proxy.config import Config, ConfigError, config_for_upstream, load_config, parse_config
from sse_proxy.config.models import RouteBase, ServerSettings, UpstreamBase
from sse_proxy.config.stream import StreamSettings

FAULTS = Path(__file__).parent.parent / "vectors" / "config" / "faults.txt"

# Where the lines of a section of the file stand.
FRAMES = {
    "top": "{}\nupstreams: [{{name: a, url: 'http://h'}}]",
    "upstreams": "upstreams:\n  - {}",
    "upstream": "upstreams:\n  - name: a\n    url: http://h\n    {}",
    "route": (
        "upstreams:\n  - name: a\n    url: http://h\n    preset: none\n"
        "    routes:\n      - path: /a\n        stream: {{{}}}"
    ),
    "file": "{}",
}


def cases() -> Iterator[tuple[str, str, list[str]]]:
    """The cases of the file: section, lines, problems."""
    section = ""
    for block in FAULTS.read_text(encoding="utf-8").split("\n\n")[1:]:
        lines = block.strip("\n").split("\n")
        if lines[0].strip("[]") in FRAMES:
            section = lines[0].strip("[]")
        else:
            given_lines = [line for line in lines if not line.startswith("! ")]
            yield section, "\n".join(given_lines), [line[2:] for line in lines if line.startswith("! ")]


CASES = list(cases())


def problems(text: str, env: dict[str, str] | None = None) -> list[str]:
    """What is wrong with a configuration that cannot be used."""
    with pytest.raises(ConfigError) as caught:
        parse_config(text, env or {})
    assert str(caught.value) == "\n".join(caught.value.problems)
    return caught.value.problems


@pytest.mark.parametrize(("section", "lines", "expected"), CASES, ids=[f"{s}: {text[:40]}" for s, text, _ in CASES])
def test_a_fault_gives_its_line(section: str, lines: str, expected: list[str]) -> None:
    text = lines if section == "file" else FRAMES[section].format(lines)
    assert expected
    assert problems(text, {"WORD": "auto"}) == expected


def test_there_is_a_fault_for_every_setting() -> None:
    places = " ".join(problem.partition(": ")[0] for _, _, expected in CASES for problem in expected)
    for model in (ServerSettings, UpstreamBase, RouteBase, StreamSettings):
        for key in model.model_fields:
            assert re.search(rf"\b{key}\b", places), key


def test_every_line_of_a_file_of_faults_is_reported() -> None:
    text = "\n".join(["listen: 80", "admin: 81", "max_streams: x", "head_timeout: 1", "upstreams: [5, 6, {name: 1}]"])
    lines = problems(text)
    assert [line.partition(": ")[0] for line in lines] == [
        "listen", "admin", "max_streams", "head_timeout",
        "upstreams[0]", "upstreams[1]", "upstreams[2].name", "upstreams[2].url",
    ]  # fmt: skip


def test_a_problem_is_one_line_of_characters_that_can_be_shown() -> None:
    text = 'listen: "a\\nb\\u2028c\\x1b[31m"\n"k\\ney\\ud800": 1\nupstreams: [{name: a, url: "http://h/\\n"}]'
    lines = problems(text)
    assert len(lines) == 3
    assert all(line.isprintable() for line in lines)


def test_what_is_found_is_shown_in_80_characters() -> None:
    [line] = problems(f"listen: {'x' * 5000}\nupstreams: [{{name: a, url: 'http://h'}}]")
    assert len(line) < 200
    assert "x" * 70 in line


def test_a_file_of_rubbish_gives_a_hundred_problems_and_the_number_of_the_others() -> None:
    lines = problems("\n".join(f"key{i}: 1" for i in range(500)))
    assert len(lines) == 101
    assert lines[-1] == "<config>: 401 more problems"


@pytest.mark.parametrize(
    "url",
    [
        "http://user:secret@h/",
        "http://us@er:sec;secret; x@h",
        "ftp://u:secret@h",
        "user:secret@h:80",
        "http://h:secret@",
    ],
)
def test_a_password_is_never_shown(url: str) -> None:
    lines = problems(yaml.safe_dump({"upstreams": [{"name": "a", "url": url}]}))
    assert lines
    assert "secret" not in "\n".join(lines)


def test_a_combination_is_told_once_where_it_was_written() -> None:
    # Both routes of the preset and every undeclared stream would suffer from it.
    text = "defaults: {max_event: 32KiB}\nupstreams: [{name: a, url: 'http://h'}, {name: b, url: 'http://h'}]"
    [line] = problems(text)
    assert line.startswith("defaults.max_event: ")


# ---- files ----


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "the file is empty; allowed: a mapping that has at least upstreams"),
        (b"# nothing\n", "the file is empty; allowed: a mapping that has at least upstreams"),
        (b"\xef\xbb\xbf", "the file is empty; allowed: a mapping that has at least upstreams"),
        (b"a: b\n\xff\xfe\x00", "is not text in UTF-8 (line 2, byte 5)"),
        (b"a: \x00", "no YAML: line 1 holds the character U+0000, which a file may not hold"),
        (b"#" * (1024 * 1024 + 1), "larger than 1024 KiB"),
        (b"[" * 1000, "nested deeper than 30 levels"),
        (b"x: [" + b"a," * 60_000 + b"]", "more than 50000 values"),
    ],
    ids=["empty", "comment", "bom", "binary", "nul", "large", "deep", "long"],
)
def test_a_file_that_is_no_configuration(tmp_path: Path, content: bytes, expected: str) -> None:
    file = tmp_path / "config.yaml"
    file.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        load_config(file, {})
    assert caught.value.problems == [f"{file}: {expected}"]


def test_a_file_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(tmp_path / "none.yaml", {})
    assert caught.value.problems == [f"{tmp_path}/none.yaml: there is no such file"]
    with pytest.raises(ConfigError) as caught:
        load_config(tmp_path, {})
    assert caught.value.problems == [f"{tmp_path}: is a directory; allowed: a YAML file"]
    with pytest.raises(ConfigError, match="cannot be read"):
        load_config(Path("nul\0"), {})
    with pytest.raises(ConfigError, match="cannot be read"):
        load_config(tmp_path / ("x" * 5000), {})


def test_a_file_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_args: object, **_kwargs: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(ConfigError) as caught:
        load_config(tmp_path / "config.yaml", {})
    assert caught.value.problems == [f'"{tmp_path}/config.yaml": cannot be read (Permission denied)']


def test_an_anchor_that_blows_up_is_refused() -> None:
    text = "a: &a [x, x, x, x, x, x, x, x, x, x]\n"
    for name, before in zip("bcdefgh", "abcdefg", strict=True):
        text += f"{name}: &{name} [{', '.join(f'*{before}' for _ in range(10))}]\n"
    assert problems(text) == ["<config>: more than 50000 values; do aliases repeat one another?"]


def test_the_files_a_setting_names_are_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pem = tmp_path / "a.pem"
    pem.write_text("x")
    text = (
        f"tls: {{cert: {pem}, key: {pem}}}\ntranscript: {tmp_path}/new.jsonl\nupstreams: [{{name: a, url: 'http://h'}}]"
    )
    config = parse_config(text, {})
    assert config.tls is not None
    assert (config.tls.cert, config.tls.key, config.transcript) == (pem, pem, tmp_path / "new.jsonl")
    monkeypatch.setattr(os, "access", lambda *_args: False)  # root may read everything
    assert problems(text) == [
        f'tls.cert: found "{pem}"; allowed: the name of a PEM file that can be read (line 1)',
        f'tls.key: found "{pem}"; allowed: the name of a PEM file that can be read (line 1)',
        f'transcript: found "{tmp_path}/new.jsonl"; allowed: the name of a file that can be written (line 2)',
    ]


# ---- without a file ----


def test_the_arguments_of_a_command_are_named_as_they_are() -> None:
    with pytest.raises(ConfigError) as caught:
        config_for_upstream("localhost:5232", preset="gapi", listen="8080", admin="x")
    assert [line.partition(";")[0] for line in caught.value.problems] == [
        'listen: found "8080"',
        'admin: found "x"',
        'url: found "localhost:5232"',
        'preset: found "gapi"',
    ]


# ---- anything ----

words = st.sampled_from(
    [
        *ServerSettings.model_fields,
        *UpstreamBase.model_fields,
        *RouteBase.model_fields,
        *StreamSettings.model_fields,
        *("defaults", "upstreams", "routes", "stream", "cert", "key", "keep", "meta", "omit", "<<", "", "\x00", "é"),
    ]
)
likely_scalars = ["15s", "64KiB", "off", "http://h", "/a", "[DONE]", "${A}", "${A:-off}", "$${", "${", "json", "text"]
unlikely_scalars = ["gaapi", "none", "raw", "127.0.0.1:80", "::1", "0s", "/a/*", "a" * 300, "\ud800", "1" * 5000]
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=20),
    st.dates(),
    st.binary(max_size=5),
    words,
    st.sampled_from(likely_scalars + unlikely_scalars),
)
junk = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(words, inner, max_size=5), max_leaves=25
)
layers = st.dictionaries(st.sampled_from(list(StreamSettings.model_fields)), junk, max_size=4)
likely_routes = st.fixed_dictionaries(
    {"path": st.sampled_from(["/a", "/a/*", "/api/chatbot/chat/stream", "x"])},
    optional={"stream": layers, "methods": junk},
)
likely = st.fixed_dictionaries(
    {
        "upstreams": st.lists(
            st.builds(
                lambda base, own: {**own, **base},
                st.fixed_dictionaries(
                    {"name": st.sampled_from(["a", "b"]), "url": st.just("http://h")},
                    optional={
                        "preset": st.sampled_from(["gaapi", "openai", "agui", "none", "x"]),
                        "routes": st.lists(likely_routes, max_size=3),
                    },
                ),
                layers,
            ),
            min_size=1,
            max_size=2,
        )
    },
    optional={"defaults": layers, "listen": junk, "tls": junk, "log": junk},
)


def give_or_refuse(text: str, env: dict[str, str]) -> None:
    problems: list[str] = []
    config: Config | None = None
    try:
        config = parse_config(text, env)
    except ConfigError as error:
        problems = error.problems
    assert (config is None) == bool(problems)
    assert all(line and line.isprintable() for line in problems)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.one_of(likely, junk), st.sampled_from([{}, {"A": "off"}, {"A": "1\n- x: \udcff"}]))
@example({"upstreams": [{"name": "a", "url": "http://h", "routes": [{"path": "/a", "stream": {"json": None}}]}]}, {})
def test_any_values_give_a_configuration_or_a_refusal(values: object, env: dict[str, str]) -> None:
    try:
        text = yaml.safe_dump(values, allow_unicode=True)
    except yaml.YAMLError:  # a lone surrogate in a plain scalar
        text = yaml.safe_dump(values)
    give_or_refuse(text, env)


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet=st.sampled_from(list("ab: -[]{}&*!|>'\"#%@`,?\n\t\r~<$0.\\\ud800\x00\ufeffé")), max_size=60))
def test_any_text_gives_a_configuration_or_a_refusal(text: str) -> None:
    give_or_refuse(text, {})


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_a_file_with_a_hole_gives_a_configuration_or_a_refusal(data: st.DataObject) -> None:
    text = (Path(__file__).parent.parent.parent / "config" / "example.yaml").read_text(encoding="utf-8")
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 200)))
    give_or_refuse(text[:start] + data.draw(st.text(max_size=10)) + text[end:], {})
