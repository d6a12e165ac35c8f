"""Debian's Chromium, for the tests that need a real browser."""

from __future__ import annotations

import shutil

__all__ = ["CHROMIUM", "FLAGS"]

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")

# Headless, as root too, and without a word to anybody but the page.
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--no-proxy-server",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-dev-shm-usage",
    "--disable-sync",
)
