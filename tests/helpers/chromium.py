"""The system's Chromium, driven by Playwright: tabs that fail the test for an error of a script or what axe finds."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, ConsoleMessage, Page

from lab.chromium import find_program, launch

SECONDS_MAX = 20  # that a page may take on a busy machine; a wait, not a measure


def find_chromium() -> str:
    """The path of the program. Skips the test where there is none."""
    found = find_program()
    if found is None:
        pytest.skip("Chromium is not installed; run: apt-get install chromium")
    return found


@asynccontextmanager
async def open_chromium() -> AsyncIterator[Browser]:
    """Chromium for one block."""
    async with launch(find_chromium()) as browser:
        yield browser


class Tab:
    """A page of the console in a tab of its own, signed in or not.

    Attributes:
        page: Playwright's.
        errors: of scripts, and what the browser has refused to load.
    """

    def __init__(self, page: Page, url: str) -> None:
        self.page, self.url = page, url
        self.errors: list[str] = []
        page.on("pageerror", lambda error: self.errors.append(f"script: {error}"))
        page.on("console", self._note)
        page.set_default_timeout(SECONDS_MAX * 1000)

    def _note(self, message: ConsoleMessage) -> None:
        # A refused answer is part of many tests; Chromium writes each to its console.
        if message.type == "error" and "Failed to load resource" not in message.text:
            self.errors.append(message.text)

    async def open(self, path: str) -> None:
        await self.page.goto(self.url + path)

    async def sign_in(self, token: str, path: str = "/") -> None:
        await self.open(f"{path}")
        await self.page.get_by_label("Token").fill(token)
        await self.page.get_by_role("button", name="Sign in").click()
        await self.page.wait_for_selector("form.who")

    async def read(self) -> str:
        """The text of the page, as a person sees it."""
        return await self.page.inner_text("body")

    async def wait_for_text(self, text: str) -> None:
        await self.page.get_by_text(text).first.wait_for()

    async def find_faults(self) -> list[str]:
        """What axe finds that keeps a person from using the page: violations that are serious or critical."""
        found = await Axe().run(self.page, options={"resultTypes": ["violations"]})
        return [
            f"{one['id']}: {one['help']}: {node['html'][:200]}"
            for one in found.response["violations"]
            if one["impact"] in ("serious", "critical")
            for node in one["nodes"][:3]
        ]

    async def keep_picture(self, path: Path) -> None:
        await self.page.screenshot(path=path, full_page=True, animations="disabled")


@asynccontextmanager
async def open_tab(
    browser: Browser,
    url: str,
    *,
    width: int = 1280,
    height: int = 900,
    scheme: str = "light",
    scripts: bool = True,
    zone: str = "Europe/Madrid",
) -> AsyncIterator[Tab]:
    """A tab with cookies of its own. At its end an error of a script fails the test."""
    context = await browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme="dark" if scheme == "dark" else "light",
        java_script_enabled=scripts,
        timezone_id=zone,
        locale="en-GB",
        reduced_motion="reduce",
    )
    try:
        tab = Tab(await context.new_page(), url)
        yield tab
        assert tab.errors == []
    finally:
        await context.close()
