"""The package as a whole: which way its imports run, what it ships, and that its papers tell the truth."""

from __future__ import annotations

import ast
import fnmatch
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import sse_proxy
from sse_proxy.config import load_config

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "sse_proxy"
MODULES = sorted(PACKAGE.rglob("*.py"))
CONFIGS = sorted((ROOT / "config").glob("*.yaml"))
NOT_OURS = {"node_modules", "build", "dist", "venv", "__pycache__"}

# cli -> server -> config, metrics -> core -> errors. A name that is not here is a part of the command line.
RANKS = {"errors": 0, "core": 1, "config": 2, "presets": 2, "metrics": 2, "healthcheck": 2, "server": 3, "demo": 4}
OUTERMOST = 5
NAMES = {module.relative_to(PACKAGE).with_suffix("").parts[0] for module in MODULES}


def name_of(module: Path) -> str:
    return str(module.relative_to(ROOT))


def imports_of(module: Path, code: str | None = None) -> Iterator[str]:
    """Every module that a file imports, anywhere in it, by its absolute name; names taken from a package among them."""
    package = module.relative_to(ROOT).parent.parts
    for node in ast.walk(ast.parse(code or module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            origin = ".".join(part for part in (base, node.module) if part)
            yield origin
            yield from (f"{origin}.{alias.name}" for alias in node.names)


def rank_of(parts: tuple[str, ...]) -> int:
    """How far out a module stands, by its path inside the package (`("server", "admin")`)."""
    if parts == ("__init__",):  # the package itself: the names of the core, nothing further out
        return RANKS["core"]
    return RANKS.get(parts[0], OUTERMOST)


# ---- imports ----


def test_the_core_imports_neither_network_nor_clock_nor_log() -> None:
    names = [
        ".".join(module.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for module in MODULES
        if module.relative_to(PACKAGE).parts[0] == "core"
    ]
    assert len(names) > 5
    code = f"import sys, {', '.join(names)}; print(*{{'aiohttp', 'asyncio', 'socket', 'logging'}} & set(sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert run.stdout.split() == []


@pytest.mark.parametrize("module", MODULES, ids=name_of)
def test_imports_run_one_way(module: Path) -> None:
    own_rank = rank_of(module.relative_to(PACKAGE).with_suffix("").parts)
    for name in imports_of(module):
        top, *inner = name.split(".")
        if top == "sse_proxy" and inner and inner[0] in NAMES:
            assert rank_of(tuple(inner)) <= own_rank, f"{name_of(module)} imports {name}"
        if top == "aiohttp":
            assert own_rank >= RANKS["server"], f"{name_of(module)} imports aiohttp"
        if top == "pydantic":
            assert own_rank >= RANKS["config"], f"{name_of(module)} imports pydantic"


def test_the_check_of_imports_sees_every_way_to_import() -> None:
    module = PACKAGE / "core" / "not_there.py"
    code = (
        "import sse_proxy.a; from sse_proxy import b; from . import c; from ..d import e\ndef f(): import sse_proxy.g"
    )
    found = set(imports_of(module, code))
    assert {"sse_proxy.a", "sse_proxy.b", "sse_proxy.core.c", "sse_proxy.d", "sse_proxy.g"} <= found


@pytest.mark.parametrize("module", MODULES, ids=name_of)
def test_every_module_says_what_it_is(module: Path) -> None:
    assert ast.get_docstring(ast.parse(module.read_text(encoding="utf-8")))


def test_the_tests_mirror_the_packages() -> None:
    for package in {module.parent for module in MODULES}:
        mirror = ROOT / "tests" / package.relative_to(PACKAGE)
        assert list(mirror.glob("test_*.py")), f"no tests for {name_of(package)}"
        assert (mirror / "__init__.py").exists()


# ---- what is shipped ----


def test_every_file_that_is_not_python_is_in_the_wheel() -> None:
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    patterns = pyproject["tool"]["setuptools"]["package-data"]["sse_proxy"]
    for file in PACKAGE.rglob("*"):
        name = str(file.relative_to(PACKAGE))
        if file.is_file() and file.suffix not in (".py", ".pyc"):
            # setuptools' `*` stays inside one folder; fnmatch's does not.
            shipped = any(fnmatch.fnmatch(name, each) and name.count("/") == each.count("/") for each in patterns)
            assert shipped, f"{name} is not in package-data"
    for package in {module.parent for module in MODULES}:
        assert (package / "__init__.py").exists(), f"{name_of(package)} would not be found by setuptools"


def test_the_changelog_has_the_version() -> None:
    headings = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.M)
    assert sse_proxy.__version__ in headings[0]


@pytest.mark.parametrize("file", CONFIGS, ids=name_of)
def test_every_configuration_loads(file: Path) -> None:
    config = load_config(file, {"SSE_PROXY_UPSTREAM": "http://chat.example:5232"})
    assert config.upstreams


def test_the_image_is_configured_by_its_environment_alone() -> None:
    variables = dict(re.findall(r"(SSE_PROXY_\w+)=(\S+)", (ROOT / "Dockerfile").read_text(encoding="utf-8")))
    config = load_config(ROOT / "config/gaapi.yaml", {**variables, "SSE_PROXY_UPSTREAM": "http://chat.example:5232"})
    assert [upstream.url for upstream in config.upstreams] == ["http://chat.example:5232"]
    assert (config.listen.host, config.listen.port) == ("0.0.0.0", 8080)
    assert config.admin is not None
    assert (config.admin.host, config.admin.port) == ("0.0.0.0", 9901)


def test_the_image_runs_without_a_shell_and_without_root() -> None:
    text = re.sub(r"\\\n", "", (ROOT / "Dockerfile").read_text(encoding="utf-8"))
    last = text[text.rindex("\nFROM ") :]
    for form in (r"^ENTRYPOINT (.+)$", r"^CMD (.+)$", r"^HEALTHCHECK .*CMD (.+)$"):
        [words] = re.findall(form, last, re.M)
        assert all(isinstance(word, str) for word in json.loads(words))
    [user] = re.findall(r"^USER (\d+):\d+$", last, re.M)
    assert int(user) > 0


def test_the_image_copies_what_there_is() -> None:
    kept = [line[1:] for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").split() if line.startswith("!")]
    copied = [
        source
        for line in re.findall(r"^COPY (?!--from)(.+)$", (ROOT / "Dockerfile").read_text(encoding="utf-8"), re.M)
        for source in line.split()[:-1]
    ]
    assert sorted(copied) == sorted(kept)
    for source in copied:
        assert (ROOT / source).exists()


# ---- what the papers say ----


def test_the_readme_names_only_targets_there_are() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    targets = set(re.findall(r"^(\w[\w-]*):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))
    named = set(re.findall(r"(?:^(?: {4})?|`)make ([a-z][\w-]*)", readme, re.M))
    assert {"demo", "test"} <= named
    assert named <= targets


def test_the_readme_shows_every_command_and_no_other() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    run = subprocess.run(
        [sys.executable, "-m", "sse_proxy", "--help"], capture_output=True, text=True, timeout=60, check=True
    )
    commands = set(re.findall(r"^  ([a-z][a-z-]*)(?:  |$)", run.stdout.partition("Commands:")[2], re.M))
    code = "\n".join(re.findall(r"```.*?```|`[^`\n]+`|^ {4}.+?$", readme, re.M | re.S))
    named = set(re.findall(r"\bsse-proxy ([a-z][a-z-]+)\b", code))
    assert "serve" in commands
    assert commands <= named
    assert named <= commands


def test_nothing_speaks_of_the_machine_it_was_written_on() -> None:
    # Folders of somebody's machine; the expression is written so that this file passes.
    foreign = re.compile(r"(?<![\w.])/(?:work|root)/\w|[.][.]/shared\b")
    found = [
        f"{name_of(file)}: {match.group()}"
        for file in ROOT.rglob("*")
        if file.is_file() and not is_foreign(file)
        for match in foreign.finditer(file.read_text(encoding="utf-8", errors="replace"))
    ]
    assert found == []


def is_foreign(file: Path) -> bool:
    """Whether a file was not written for the repository: installed, built or cached."""
    parts = file.relative_to(ROOT).parts
    return any(part in NOT_OURS or part.endswith(".egg-info") or (part[0] == "." and part != ".ci") for part in parts)
