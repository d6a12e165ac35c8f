"""The command line: what a user types, what is said to them, and the exit status."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from sse_proxy import __version__
from sse_proxy.cli import main

UPSTREAM = ("--upstream", "http://localhost:1")
GOOD = "upstreams: [{name: host, url: 'http://127.0.0.1:1'}]\n"


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith("SSE_PROXY_"):
            monkeypatch.delenv(name)


def run(*arguments: str, stdin: bytes = b"") -> Result:
    return CliRunner().invoke(main, arguments, input=stdin)


def process(*arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "sse_proxy", *arguments], input=stdin, capture_output=True, timeout=60, check=False
    )


def test_version_and_help() -> None:
    assert run("--version").output == f"sse-proxy, version {__version__}\n"
    listed = run("--help").output
    for command in ("serve", "demo", "fix", "read", "matrix", "check-config", "schema", "healthcheck"):
        assert f"\n  {command}" in listed
        assert run(command, "--help").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "suggestion"),
    [
        (("serv",), "Did you mean 'serve'?"),
        (("serve", "--upstreem", "x"), "'--upstream'?"),
        (("fix", "--dialekt", "auto"), "Did you mean '--dialect'?"),
    ],
)
def test_a_slip_is_told_with_what_was_meant(arguments: tuple[str, ...], suggestion: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert suggestion in " ".join(result.output.split())


# --- check-config, schema ------------------------------------------------------------------------------------------


def test_check_config_good(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(GOOD)
    result = run("check-config", str(path))
    assert (result.exit_code, result.stdout) == (0, f"{path}: good. Upstreams: host (http://127.0.0.1:1)\n")


@pytest.mark.parametrize("command", [("check-config",), ("serve", "-c")])
def test_a_bad_file_is_one_line_for_each_fault(command: tuple[str, ...], tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("max_streams: many\nlissten: x\nupstreams: [{name: host, url: ftp://x}]\n")
    result = run(*command, str(path))
    assert result.exit_code == 2
    lines = result.stderr.splitlines()
    assert len(lines) == 3
    assert all(line.startswith("sse-proxy: ") for line in lines)
    assert any("did you mean listen" in line for line in lines)
    assert any("upstreams[0].url" in line for line in lines)


@pytest.mark.parametrize("command", [("check-config",), ("serve", "-c"), ("healthcheck", "-c")])
def test_a_file_that_is_not_there(command: tuple[str, ...], tmp_path: Path) -> None:
    result = run(*command, str(tmp_path / "none.yaml"))
    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == 1
    assert "none.yaml" in result.stderr


def test_schema_and_presets() -> None:
    assert json.loads(run("schema").output)["properties"]["upstreams"]
    assert yaml.safe_load(run("schema", "--preset", "gaapi").output)["routes"]
    unknown = run("schema", "--preset", "gapi")
    assert unknown.exit_code == 2
    assert "gaapi" in unknown.stderr


# --- serve ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "nothing to serve"),
        (("--upstream", "localhost:5232"), "http://localhost:5232"),
        (("--upstream", "http://localhost:1", "--listen", "8080"), "did you mean 127.0.0.1:8080?"),
        (("--upstream", "http://localhost:1", "--listen", "localhost"), "allowed: HOST:PORT"),
        (("--upstream", "http://localhost:1", "--preset", "gapi"), "did you mean gaapi?"),
    ],
)
def test_serve_refuses_what_it_cannot_mean(arguments: tuple[str, ...], told: str) -> None:
    result = run("serve", *arguments)
    assert result.exit_code == 2
    assert told in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_file_and_an_upstream_are_one_too_many(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(GOOD)
    assert run("serve", "-c", str(path), "--upstream", "http://x").exit_code == 2


@pytest.mark.parametrize("which", ["--listen", "--admin"])
def test_a_port_that_is_taken_is_one_line_and_status_1(which: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        where = {"--listen": "127.0.0.1:0", "--admin": "off", which: f"127.0.0.1:{taken.getsockname()[1]}"}
        result = process("serve", *UPSTREAM, *(word for pair in where.items() for word in pair))
    assert result.returncode == 1
    assert len(result.stderr.splitlines()) == 1
    assert b"cannot start: " in result.stderr
    assert b"address already in use" in result.stderr.lower()


def test_a_listen_address_that_does_not_exist_is_named() -> None:
    result = process("serve", *UPSTREAM, "--listen", "no-such-host.invalid:1", "--admin", "off")
    assert result.returncode == 1
    assert len(result.stderr.splitlines()) == 1
    assert b"no-such-host.invalid:1" in result.stderr


def test_a_certificate_that_cannot_be_read_is_one_line_and_status_1(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    (tmp_path / "x.pem").write_text("no certificate")
    path.write_text(f"listen: 127.0.0.1:0\nadmin: off\ntls: {{cert: {tmp_path}/x.pem, key: {tmp_path}/x.pem}}\n{GOOD}")
    result = process("serve", "-c", str(path))
    assert result.returncode == 1
    assert len(result.stderr.splitlines()) == 1


# --- healthcheck ---------------------------------------------------------------------------------------------------


def test_healthcheck_of_nothing() -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        result = run("healthcheck", "--url", f"http://127.0.0.1:{nobody.getsockname()[1]}/readyz")
    assert result.exit_code == 1
    assert len(result.stderr.splitlines()) == 1


def test_healthcheck_without_an_admin_listener(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(f"admin: off\n{GOOD}")
    result = run("healthcheck", "-c", str(path))
    assert result.exit_code == 2
    assert "admin: off" in result.stderr


# --- fix -----------------------------------------------------------------------------------------------------------

WIRES = Path(__file__).parent / "vectors" / "wire"


def test_fix_repairs_stdin_and_reports() -> None:
    wire = (WIRES / "improvisation.743.gaapi.sse").read_bytes()
    result = process("fix", "--report", "--read-size", "1", stdin=wire)
    assert result.returncode == 0
    assert result.stdout.endswith(b"data: [DONE]\n\n")
    assert b"\ndata: \ndata: - **Am**" in result.stdout
    report = json.loads(result.stderr)
    assert report["outcome"] == "complete"
    assert report["repairs"]["unprefixed_line"] > 0


def test_fix_of_a_broken_stream_exits_1_and_of_bad_arguments_2() -> None:
    broken = process("fix", stdin=b"data: One. \n\n")
    assert broken.returncode == 1
    assert b'"code":"upstream_incomplete"' in broken.stdout
    assert process("fix", "--max-chunk", "lots", stdin=b"").returncode == 2


def test_fix_whose_reader_leaves_says_nothing() -> None:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    writer = subprocess.Popen([sys.executable, "-m", "sse_proxy", "fix"], **pipes)  # type: ignore[call-overload]
    assert writer.stdin
    assert writer.stdout
    assert writer.stderr
    writer.stdout.close()
    writer.stdin.write(b"data: One. \n\n" * 10)
    writer.stdin.close()
    assert writer.stderr.read() == b""
    assert writer.wait(30) == 1
    writer.stderr.close()


# --- demo ----------------------------------------------------------------------------------------------------------


def test_demo_once_shows_both_answers() -> None:
    result = run("demo", "--once", "which arpeggio fits Am F C G")
    assert result.exit_code == 0
    assert "directly" in result.output
    assert "exact" in result.output


@pytest.mark.parametrize("fail", ["500", "rst", "eof", "error", "stall", "no-hangup"])
def test_demo_once_shows_a_failure(fail: str) -> None:
    result = run("demo", "--once", "which arpeggio", "--fail", fail)
    assert result.exit_code == 0
    code = {
        "500": "upstream_http_error",
        "rst": "upstream_truncated",
        "eof": "upstream_incomplete",
        "error": "upstream_error",
        "stall": "upstream_stalled",
        "no-hangup": "exact",
    }[fail]
    assert code in " ".join(result.output.split())


def test_demo_refuses_what_it_does_not_know() -> None:
    assert "no-hangup" in run("demo", "--once", "x", "--fail", "nope").stderr
    assert run("demo", "--once", "x", "--fail", "nope").exit_code == 2
    assert run("demo", "--fail", "500").exit_code == 2
    assert run("demo", "--listen", "nowhere").exit_code == 2


def test_demo_on_a_port_that_is_taken() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        result = process("demo", "--listen", f"127.0.0.1:{taken.getsockname()[1]}")
    assert result.returncode == 1
    assert len(result.stderr.splitlines()) == 1
