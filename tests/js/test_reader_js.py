"""`sse_proxy/server/inspector/reader.js`: its tests are JavaScript, `reader.test.mjs`, and run in node."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

NODE = shutil.which("node")
HERE = Path(__file__).parent


@pytest.mark.node
@pytest.mark.skipif(NODE is None, reason="node is not installed")
def test_reader_js() -> None:
    assert NODE is not None
    command = [NODE, "--test", "--test-reporter=tap", str(HERE / "reader.test.mjs")]
    run = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "\n# pass 2" in run.stdout  # twenty-odd tests: an empty file would pass as well
