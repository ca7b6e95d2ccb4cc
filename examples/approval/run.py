"""Orders wait for the bank's signed webhook, and large ones for an operator, while the shop is killed. The books balance.

    python examples/approval/run.py
    python examples/approval/run.py --accept-forged    # a shop that verifies no signature is found out

About 25 s. Exit code 1: something is not as promised.
"""

import argparse
import asyncio
import base64
import logging
import os
import random
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import uvicorn  # noqa: E402

from arriero import ArrieroError  # noqa: E402
from examples.approval import books  # noqa: E402  # found from the repository's root
from examples.approval.shop import app  # noqa: E402
from examples.approval.shop_process import BREAK, ShopProcess  # noqa: E402
from examples.approval.stories import STORIES, End  # noqa: E402
from examples.approval.world import NotAsPromised, Order, World  # noqa: E402

EACH = 3  # orders of each story
CUSTOMERS = 8  # who place orders at the same time


def draw_orders(seed: int) -> list[Order]:
    """Draw the orders, in the order in which they are placed."""
    chance = random.Random(seed)
    orders = [
        Order(f"order-{number:03}", name, chance.randint(*story.cents), story.open_for)
        for number, (name, story) in enumerate((each for each in STORIES.items() for _ in range(EACH)), start=1)
    ]
    return chance.sample(orders, len(orders))


def listen() -> socket.socket:
    """Listen on a free port of this machine."""
    return socket.create_server(("127.0.0.1", 0))


@asynccontextmanager
async def serving(world: World) -> AsyncIterator[str]:
    """Run the bank and the warehouse on this loop. Yields: their URL."""
    server = uvicorn.Server(uvicorn.Config(world.remote.api, log_level="error", timeout_graceful_shutdown=1))
    with listen() as listener:
        running = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            await running


async def play(world: World, order: Order, turn: asyncio.Semaphore) -> End:
    """Place an order and play its story. Returns: how it must end."""
    story = STORIES[order.story]
    if (early := story.early) is not None:
        world.at_collection[order.id] = lambda: early(world, order)
    async with turn:
        await world.place(order)
    end = await story.play(world, order)
    await world.wait_for_end(order)
    return end


async def run(folder: Path, store: str, *, accepts_forged: bool) -> list[str]:
    """Play all stories. Returns: what is not as promised."""
    secret = "whsec_" + base64.b64encode(random.Random(7).randbytes(32)).decode()
    world = World(secret)
    async with serving(world) as url, app:
        with listen() as free:
            port = int(free.getsockname()[1])
        environment = {"SHOP_BANK": url, "SHOP_WAREHOUSE": url, "SHOP_BANK_SECRET": secret}
        environment |= {BREAK: "1"} if accepts_forged else {}
        environment["ARRIERO_LOST_PROCESSES_MAX"] = "100"  # here no task is the cause of a death
        world.shop = ShopProcess(port, environment, folder / "shop.log")
        watching = asyncio.create_task(world.watch_questions())
        try:
            orders, turn = draw_orders(7), asyncio.Semaphore(CUSTOMERS)
            ends = dict(zip(orders, await asyncio.gather(*(play(world, one, turn) for one in orders)), strict=True))
            errors = await books.find_errors(world, ends, folder, store)
        finally:
            watching.cancel()
            world.shop.kill()
            await world.close()
    books.print_table(world, dict(sorted(ends.items(), key=lambda item: item[0].id)))
    print(f"the shop was killed {world.shop.kills} times; {len(world.given_back)} payments came too late, or twice")
    return errors


def main(arguments: Sequence[str]) -> int:
    """Run it. Returns: the exit code."""
    parser = argparse.ArgumentParser(description="Orders wait for the bank and for finance, while the shop is killed.")
    parser.add_argument("--accept-forged", action="store_true", help="the shop verifies no signature: it is found out")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="arriero-approval-") as folder:
        store = os.environ["ARRIERO_STORE"] = f"sqlite:///{folder}/shop.db"
        try:
            errors = asyncio.run(run(Path(folder), store, accepts_forged=options.accept_forged))
        except (NotAsPromised, ArrieroError, TimeoutError) as stopped:
            errors = [str(stopped) or "an order has not ended in time"]
    for error in errors:
        print(f"WRONG: {error}", file=sys.stderr)
    print("not as promised" if errors else "as promised: every order was paid and delivered, or undone, to the cent")
    return 1 if errors else 0


if __name__ == "__main__":
    logging.basicConfig(level=logging.ERROR)  # warnings about the killed shop are expected
    sys.exit(main(sys.argv[1:]))
