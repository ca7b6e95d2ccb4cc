"""Take pictures of the console's pages, of the shop in trouble, at three widths, light and dark.

python -m lab.console_pictures FOLDER
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path

from playwright.async_api import Browser

from lab.chromium import find_program, launch
from lab.console_shop import ServedShop, serving_shop

PAGES = {
    "overview": "/",
    "tasks": "/tasks",
    "task": "/tasks/order-4711",
    "failures": "/failures",
    "inbox": "/inbox",
    "convoys": "/convoys",
    "agents": "/agents",
    "agent": "/agents/courier",
    "schedules": "/schedules",
    "audit": "/audit",
}
WIDTHS = (360, 1280, 2560)
SCHEMES = ("light", "dark")
ZONE = "Europe/Madrid"
OF_DOCS = ("overview", 1280, "light")  # the picture that docs/console.png is


async def take_pictures(browser: Browser, shop: ServedShop, folder: Path, width: int, scheme: str) -> None:
    """Take a picture of each page in one window."""
    context = await browser.new_context(
        viewport={"width": width, "height": 800},
        color_scheme="dark" if scheme == "dark" else "light",
        timezone_id=ZONE,
        reduced_motion="reduce",
    )
    page = await context.new_page()
    await page.goto(f"{shop.url}/sign-in#{shop.token}")
    await page.get_by_role("button", name="Sign in").click()
    await page.wait_for_selector("form.who")
    for name, path in PAGES.items():
        await page.goto(shop.url + path)
        await page.wait_for_load_state("load")
        await page.screenshot(path=folder / f"{name}-{width}-{scheme}.png", full_page=True, animations="disabled")
        if (name, width, scheme) == OF_DOCS:
            await page.screenshot(path=folder / "console.png", animations="disabled")  # what fits the window
    await context.close()


async def main(folder: Path, orders: int) -> int:
    """Take all pictures. Returns: the exit code."""
    program = find_program()
    if program is None:
        sys.stderr.write("Chromium is not installed; run: apt-get install chromium\n")
        return 2
    async with serving_shop(orders=orders) as shop, launch(program) as browser:
        await shop.app.task("order-2000").compensate(by="ana", reason="the customer has cancelled")
        for scheme in SCHEMES:
            for width in WIDTHS:
                await take_pictures(browser, shop, folder, width, scheme)
    sys.stdout.write(f"{len(PAGES) * len(WIDTHS) * len(SCHEMES)} pictures are in {folder}\n")
    return 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--orders", type=int, default=40)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    sys.exit(asyncio.run(main(options.folder, options.orders)))
