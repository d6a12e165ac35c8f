"""The README's generated parts are what the models say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_the_generated_parts_are_current() -> None:
    run = subprocess.run(
        [sys.executable, str(ROOT / "scripts/readme_tables.py"), "--check"], capture_output=True, text=True, timeout=60
    )
    assert run.returncode == 0, f"run python scripts/readme_tables.py\n{run.stdout}{run.stderr}"
