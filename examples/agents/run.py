"""Orders whose payments are made by a TypeScript program and whose parcels by a shell script, while all are killed.

    python examples/agents/run.py [--orders 1000]

Exit code 1: the books do not balance to the cent. It needs node, npm or tsc, curl and jq.
"""

import argparse
import asyncio
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT))

from arriero.model import TaskState  # noqa: E402
from examples.agents.shop import app, fulfil  # noqa: E402

KILL_EVERY_SECONDS = 1.5
GRAMS_MAX = 30_000  # shipping refuses heavier parcels, so that their charges are undone
SECONDS_MAX = 600.0
ENDED = (TaskState.PROCESSED, TaskState.COMPENSATED, TaskState.HELD)
STRIPS_TYPES_FROM = (22, 18)  # the first Node that runs TypeScript as it is


class Program:
    """A process group that is started again whenever it was killed."""

    def __init__(self, name: str, command: list[str], environment: dict[str, str], log: Path) -> None:
        self.name = name
        self._command = command
        self._environment = {**os.environ, **environment}
        self._log = log
        self.kills = 0
        self.start()

    def start(self) -> None:
        """Start it."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, cwd=ROOT, env=self._environment, stdout=log, stderr=log, start_new_session=True
            )

    def kill(self) -> None:
        """Kill all of it, without a warning."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def kill_and_restart(self) -> None:
        """Kill it in the middle of its work, and start it anew."""
        self.kills += 1
        self.kill()
        self.start()


def find_node_program(folder: Path) -> Path:
    """Return what Node runs: the TypeScript itself, or what the compiler makes of it."""
    source = HERE / "payments.mts"
    said = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout
    major, minor, *_ = said.strip().lstrip("v").split(".")
    if (int(major), int(minor)) >= STRIPS_TYPES_FROM:
        return source
    compiler = shutil.which("tsc", path=f"{ROOT / 'node_modules' / '.bin'}:{os.environ['PATH']}")
    if compiler is None:
        subprocess.run(["npm", "install", "--no-save", "--silent", "--prefix", folder, "typescript@5"], check=True)
        compiler = str(folder / "node_modules" / ".bin" / "tsc")
    options = ["--noCheck", "--target", "es2022", "--module", "es2022", "--outDir", str(folder)]
    subprocess.run([compiler, *options, str(source)], check=True)
    return folder / "payments.mjs"


def find_port() -> int:
    """Return a port that is free just now."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
        return port


def draw_orders(count: int) -> dict[str, tuple[int, int]]:
    """Draw orders: cents and grams, by name. Every fifth or so is too heavy."""
    chance = random.Random(7)
    return {f"o-{number:05}": (chance.randint(1, 99_999), chance.randint(1, 37_500)) for number in range(count)}


async def start_programs(folder: Path) -> list[Program]:
    """Start Scheduler, gateway and both Agents, each Agent with a token of its own."""
    port = find_port()
    tokens: dict[str, str] = {}
    for agent in ("payments", "shipping"):
        created = await app.tokens.create(f"program-of-{agent}", scopes=[f"agent:{agent}"], by="run.py")
        tokens[agent] = created.token
    url = {"ARRIERO_URL": f"http://127.0.0.1:{port}"}
    payments = {**url, "ARRIERO_TOKEN": tokens["payments"], "PAYMENTS_BOOK": str(folder / "payments.jsonl")}
    shipping = {**url, "ARRIERO_TOKEN": tokens["shipping"], "BOOKINGS": str(folder / "bookings")}
    node = find_node_program(folder)
    arriero = [sys.executable, "-m", "arriero"]
    commands: list[tuple[str, list[str], dict[str, str]]] = [
        ("scheduler", [*arriero, "run", "examples.agents.shop:app"], {}),
        ("gateway", [*arriero, "serve", "examples.agents.shop:app", "--port", str(port)], {}),
        ("payments", ["node", str(node)], payments),
        ("shipping", ["sh", str(HERE / "shipping.sh")], shipping),
    ]
    return [Program(name, command, added, folder / f"{name}.log") for name, command, added in commands]


async def wait_and_kill(programs: list[Program], count: int) -> None:
    """Kill the gateway and the Agents in turn until all tasks have ended: each time after another order has ended.

    On a slow machine a program needs longer to begin than ``KILL_EVERY_SECONDS``.
    """
    victims = [program for program in programs if program.name != "scheduler"]
    at, turn, ended_before = 0.0, 0, -1
    while True:
        states = await app.session.store.counts()
        ended = sum(states.get(state, 0) for state in ENDED)
        if ended >= count:
            return
        if at > SECONDS_MAX:
            raise TimeoutError(f"after {SECONDS_MAX:g} s {ended} of {count} orders have ended")
        await asyncio.sleep(0.25)
        at += 0.25
        if at % KILL_EVERY_SECONDS < 0.25 and ended > ended_before:
            ended_before = ended
            victims[turn % len(victims)].kill_and_restart()
            turn += 1


def read_book(folder: Path) -> tuple[dict[str, int], Counter[str]]:
    """Read the book of payments: the cents that it keeps of each order, and how often each was charged."""
    kept: defaultdict[str, int] = defaultdict(int)
    charges: Counter[str] = Counter()
    for line in (folder / "payments.jsonl").read_text().splitlines():
        if not line.endswith("}"):
            continue
        entry = json.loads(line)
        if entry["kind"] != "bar":
            kept[entry["order"]] += entry["cents"] if entry["kind"] == "charge" else -entry["cents"]
            charges[entry["order"]] += entry["kind"] == "charge"
    return dict(kept), charges


async def compare(folder: Path, orders: dict[str, tuple[int, int]]) -> list[str]:
    """Compare the ends of the tasks, the money and the parcels."""
    shipped = {name for name, (_, grams) in orders.items() if grams <= GRAMS_MAX}
    states = Counter({name: (await app.task(name).view()).state for name in orders}.values())
    kept, charges = read_book(folder)
    booked = Counter(
        path.read_text().split()[0]
        for path in (folder / "bookings").glob("*")
        if path.is_file() and ".new." not in path.name
    )
    wanted = {name: cents if name in shipped else 0 for name, (cents, _) in orders.items()}
    print(
        f"tasks: {dict(states)}; cents kept: {sum(kept.values()):,} of {sum(wanted.values()):,}; parcels: {len(booked)}"
    )
    books = {
        "tasks processed": (states["processed"], len(shipped)),
        "tasks compensated": (states["compensated"], len(orders) - len(shipped)),
        "cents kept of each order": ({name: kept.get(name, 0) for name in orders}, wanted),
        "orders charged twice": ([name for name, count in charges.items() if count > 1], []),
        "parcels": (booked, Counter(shipped)),
    }
    return [what for what, (is_so, should_be) in books.items() if is_so != should_be]


async def run(folder: Path, count: int) -> list[str]:
    """Process the orders. Returns what is not as promised."""
    orders = draw_orders(count)
    async with app:
        programs = await start_programs(folder)
        try:
            for name, (cents, grams) in orders.items():
                await app.submit(fulfil(name, cents, grams), task_id=name)
            await wait_and_kill(programs, count)
            print("killed:", ", ".join(f"{one.name} {one.kills} times" for one in programs if one.kills))
            return await compare(folder, orders)
        finally:
            for program in programs:
                program.kill()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--orders", type=int, default=1_000)
    count = parser.parse_args().orders
    with tempfile.TemporaryDirectory() as given:
        folder = Path(given)
        os.environ["ARRIERO_STORE"] = f"sqlite:///{folder}/shop.db"
        wrong = asyncio.run(run(folder, count))
        for what in wrong:
            print(f"WRONG: {what}", file=sys.stderr)
    print("not as promised" if wrong else f"as promised: {count:,} orders ended, and the books balance to the cent")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
