"""A real Chromium, driven by Playwright, and pages of made runs."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from costlens.cli.report_page import write_page
from costlens.storage.run_folder import RunFolder

if TYPE_CHECKING:
    from playwright.sync_api import Browser

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.fixture(scope="session")
def _chromium() -> Iterator[Browser | None]:
    if CHROMIUM is None:
        yield None
        return
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        # As root, and in containers, Chromium's own sandbox is not to be had.
        browser = driver.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"]
        )
        yield browser
        browser.close()


@pytest.fixture
def chromium(_chromium: Browser | None, require: Callable[[str, bool, str], None]) -> Browser:
    """Return the browser; skips, or fails in CI, where there is none."""
    require("browser", _chromium is not None, "no chromium here: tests/browser/install.sh")
    assert _chromium is not None
    return _chromium


@pytest.fixture
def publish(tmp_path: Path) -> Callable[[RunFolder], Path]:
    """Return a function that writes the page of a run and returns the file."""

    def write(folder: RunFolder) -> Path:
        target = tmp_path / f"{folder.run_id}.html"
        write_page(folder, str(target))
        return target

    return write
