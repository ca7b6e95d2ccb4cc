"""Measure the console's pages: `python bench/pages.py`; the server's time for each on a store full of finished tasks, and open pages.

A shop in trouble (`lab/console_shop.py`) is served in this process. Its last order that ended well is copied until the store has
the number of tasks that is asked for. Each page is then asked for in turn; what is timed is the server's work from the request to the
last byte, without a network. Then live pages are held open on real connections while nothing changes, and the time of the processor
is compared with that of the same process without them.
"""

import asyncio
import json
import resource
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import NamedTuple

import click
import httpx2

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent / "sides")]

from filling import fill  # noqa: E402

from arriero.testing.postgres import Server  # noqa: E402
from lab.console_paths import list_console_paths  # noqa: E402
from lab.console_shop import ServedShop, serving_shop  # noqa: E402

MILLISECONDS_MAX = 100.0
OPEN_PAGES = 200
PAGES_OF_ONE = 50  # reader: half of what one token may hold open
CORE_MAX = 0.1  # of a processor, for all open pages together
QUIET_SECONDS = 20.0
TASKS = {"sqlite": 100_000, "postgres": 1_000_000}


class PageTime(NamedTuple):
    """What one page took. ``milliseconds``: the median; ``worst``: the longest."""

    store: str
    path: str
    milliseconds: float
    worst: float
    kilobytes: float


@contextmanager
def open_store(name: str, version: int) -> Iterator[str]:
    """The URL of a new store."""
    with ExitStack() as stack:
        if name == "sqlite":
            yield f"sqlite:///{stack.enter_context(tempfile.TemporaryDirectory())}/shop.db"
            return
        server = stack.enter_context(Server.start(version, durable=False, settings={"max_wal_size": "8GB"}))
        yield server.create_database("pages")


async def measure_pages(shop: ServedShop, store: str, paths: Sequence[str], rounds: int) -> list[PageTime]:
    """Ask for each page in turn, as its one reader."""
    found: list[PageTime] = []
    transport = httpx2.ASGITransport(app=shop.server, raise_app_exceptions=False)
    async with httpx2.AsyncClient(transport=transport, base_url=shop.url) as http:
        http.cookies.set("arriero", shop.token)
        for path in paths:
            seconds: list[float] = []
            for _ in range(rounds + 1):
                begun = time.perf_counter()
                answer = await http.get(path)
                seconds.append(time.perf_counter() - begun)
                if answer.status_code != 200:
                    raise SystemExit(f"{path} was answered with {answer.status_code}: {answer.text[-400:]}")
            warm = [one * 1000 for one in seconds[1:]]
            found.append(PageTime(store, path, median(warm), max(warm), len(answer.content) / 1024))
    return found


def read_processor_seconds() -> float:
    """Seconds of processors that this process has used."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def measure_quiet(seconds: float) -> float:
    """The part of a processor that this process uses while nothing is asked of it."""
    before, begun = read_processor_seconds(), time.perf_counter()
    await asyncio.sleep(seconds)
    return (read_processor_seconds() - before) / (time.perf_counter() - begun)


async def hold_open(shop: ServedShop, path: str, token: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Open a stream of a live page and read until it has begun."""
    host, port = shop.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nCookie: arriero={token}\r\n\r\n"
    writer.write(head.encode())
    answer = await reader.readuntil(b"\r\n\r\n")
    if b" 200 " not in answer:
        raise SystemExit(f"{path} was refused: {answer.decode()}")
    return reader, writer


async def measure_open_pages(shop: ServedShop, pages: int) -> tuple[float, float]:
    """Returns: the part of a processor that is used without open pages, and with them."""
    alone = await measure_quiet(QUIET_SECONDS)
    tokens = [
        (await shop.app.tokens.create(f"reader-{number}", scopes=["read"], by="bench")).token
        for number in range(pages // PAGES_OF_ONE + 1)
    ]
    opened = []
    for number in range(pages):
        path = "/live" if number % 2 else "/live/tasks/order-4711"
        opened.append(await hold_open(shop, path, tokens[number // PAGES_OF_ONE]))
    beside = await measure_quiet(QUIET_SECONDS)
    for _, writer in opened:
        writer.close()
    return alone, beside


async def measure_store(store: str, url: str, tasks: int, rounds: int, pages: int) -> tuple[list[PageTime], float]:
    """Measure all pages of one store, and what open ones cost."""
    async with serving_shop(url) as shop:
        begun = time.perf_counter()
        await asyncio.to_thread(fill, url, tasks)
        print(f"{store}: {tasks:,} finished tasks made in {time.perf_counter() - begun:.0f} s", flush=True)
        rows = await shop.app.session.store.list_tasks(newest_first=True, limit=1)
        paths = [*list_console_paths(shop.server), f"/tasks/finished-{rows[0].task_no}"]
        found = await measure_pages(shop, store, paths, rounds)
        alone, beside = await measure_open_pages(shop, pages)
        print(
            f"{store}: {pages} open live pages use {max(0.0, beside - alone):.1%} of a core while nothing changes"
            f" ({alone:.1%} without them)",
            flush=True,
        )
        return found, beside - alone


@click.command()
@click.option("--stores", default="sqlite,postgres", show_default=True)
@click.option(
    "--tasks", type=click.IntRange(min=1), help="Finished ones; 100,000 on SQLite and 1,000,000 on PostgreSQL."
)
@click.option("--rounds", default=20, show_default=True, type=click.IntRange(min=1), help="Requests for each page.")
@click.option("--open-pages", default=OPEN_PAGES, show_default=True, type=click.IntRange(min=0))
@click.option("--version", default=16, show_default=True, help="Of PostgreSQL.")
@click.option("--require", is_flag=True, help="Exit 1 if a page takes 100 ms, or open pages a tenth of a core.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Also write the rows here.")
def main(
    stores: str,
    tasks: int | None,
    rounds: int,
    open_pages: int,
    version: int,
    require: bool,
    json_file: Path | None,
) -> None:
    """Print the server's time for each page of the console, and what open live pages cost."""
    rows: list[PageTime] = []
    core = 0.0
    for name in stores.split(","):
        with open_store(name, version) as url:
            found, used = asyncio.run(measure_store(name, url, tasks or TASKS[name], rounds, open_pages))
            rows += found
            core = max(core, used)
    print(f"{'page':<44}{'store':<10}{'median':>10}{'longest':>12}{'size':>10}")
    for row in rows:
        print(f"{row.path:<44}{row.store:<10}{row.milliseconds:>7.1f} ms{row.worst:>9.1f} ms{row.kilobytes:>7.0f} kB")
    if json_file is not None:
        json_file.write_text(json.dumps([row._asdict() for row in rows], indent=2) + "\n")
    is_missed = core > CORE_MAX or any(row.milliseconds > MILLISECONDS_MAX for row in rows)
    sys.exit(1 if require and is_missed else 0)


if __name__ == "__main__":
    main()
