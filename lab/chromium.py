"""The system's Chromium, driven by Playwright."""

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from playwright.async_api import Browser, async_playwright

# As root in a machine without a network: Chromium would look for its maker's hosts at each start.
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)


def find_program() -> str | None:
    """Find Chromium; None: it is not installed. ARRIERO_CHROMIUM names another one."""
    return os.environ.get("ARRIERO_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")


@asynccontextmanager
async def launch(program: str) -> AsyncIterator[Browser]:
    """Run Chromium for one block."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=program, args=list(FLAGS))
        try:
            yield browser
        finally:
            await browser.close()
