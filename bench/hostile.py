"""Measure a process under attack: `python bench/hostile.py`; health, leases, `w1`, memory and log beside hostile connections.

It starts a process that does `w1` and serves the HTTP API, and measures `w1` alone. Then another process opens 100 hostile
connections of each kind, and both are measured together for a minute, while this program asks for the process's health. It
does so on SQLite and on PostgreSQL, and exits 1 with `--require` if a goal was missed. All of them share the cores of the
machine; the attackers have a low priority, and open a connection again a second after it was closed.
"""

import asyncio
import json
import math
import os
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import click

sys.path.insert(0, str(Path(__file__).parent / "sides"))  # also when it is imported, by the tests
from hostile_callers import KINDS

from arriero.testing.postgres import Server

SIDES = Path(__file__).parent / "sides"
STORES = ("sqlite", "postgres")
PROBE_SECONDS = 0.1  # between two questions for health
PROBE_SECONDS_MAX = 60.0
LEASE_SECONDS = 3.0  # as by default
GOALS = {
    "health p99, s": (lambda found: found <= 1.0, "at most 1"),
    "health unanswered": (lambda found: found == 0, "0"),
    "lapses of the lease": (lambda found: found == 0, "0"),
    "w1 with attackers / without": (lambda found: found >= 0.7, "at least 0.7"),
    "memory growth, MB": (lambda found: found <= 200, "at most 200"),
    "log, kB": (lambda found: found <= 200, "at most 200"),
}


class Attacked:
    """The process that is attacked, and its commands."""

    def __init__(self, folder: Path, url: str | None, lease_seconds: float) -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("ARRIERO_")}
        if url is not None:
            environment["BENCH_STORE_URL"] = url
        self.log = folder / "log"
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(SIDES / "hostile_server.py"), str(folder), str(lease_seconds)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=environment,
            )
        ready = self._read()
        self.ports: list[int] = ready["ports"]
        self.token: str = ready["token"]

    def command(self, line: str) -> dict[str, float]:
        """Give a command and wait for its answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        return self._read()

    def end(self) -> None:
        """Let it end."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        try:
            self._process.wait(60)
        finally:
            self._process.kill()

    def _read(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise click.ClickException(f"the attacked process has ended; its log: {self.log.read_text()[-2000:]}")
        return json.loads(line)


@contextmanager
def attacking(attacked: Attacked, connections: int, kinds: Sequence[str]) -> Iterator[None]:
    """Context in which a process of its own attacks."""
    arguments = [*map(str, attacked.ports), str(connections), *kinds]
    with subprocess.Popen(
        [sys.executable, str(SIDES / "hostile_callers.py"), *arguments], stdin=subprocess.PIPE, text=True
    ) as attackers:
        assert attackers.stdin is not None
        attackers.stdin.write(attacked.token + "\n")
        attackers.stdin.flush()
        try:
            yield
            if attackers.poll() is not None:
                raise click.ClickException("the attackers have ended by themselves")
        finally:
            attackers.kill()


class Probe:
    """Asks for health on a new connection each time, in turn without TLS and with it, until it is stopped."""

    def __init__(self, ports: Sequence[int]) -> None:
        self._ports = ports
        self._context = ssl.create_default_context()
        self._context.check_hostname, self._context.verify_mode = False, ssl.CERT_NONE
        self.seconds: list[float] = []
        self.unanswered = 0
        self._asking: set[asyncio.Task[None]] = set()

    async def beside(self, attacked: Attacked, command: str) -> dict[str, float]:
        """Ask while a command is carried out: on time, also while earlier answers have not come. Returns: its answer."""
        working, count = asyncio.create_task(asyncio.to_thread(attacked.command, command)), 0
        while not working.done():
            self._asking.add(asyncio.create_task(self._ask(with_tls=count % 2 == 1)))
            count += 1
            await asyncio.wait({working}, timeout=PROBE_SECONDS)
        await asyncio.gather(*self._asking)
        return working.result()

    async def _ask(self, *, with_tls: bool) -> None:
        began_at = time.monotonic()
        try:
            async with asyncio.timeout(PROBE_SECONDS_MAX):
                reader, writer = await asyncio.open_connection(
                    "127.0.0.1", self._ports[with_tls], ssl=self._context if with_tls else None
                )
                writer.write(b"GET /v1/health/live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                answer = await reader.read()
                writer.close()
        except (OSError, TimeoutError):
            answer = b""
        self.seconds.append(time.monotonic() - began_at)
        self.unanswered += not answer.startswith(b"HTTP/1.1 200")


def compute_p99(values: Sequence[float]) -> float:
    """The 99th percentile: of 100 values, the second largest."""
    ordered = sorted(values)
    return ordered[math.ceil(0.99 * len(ordered)) - 1] if ordered else math.inf


async def measure(attacked: Attacked, seconds: float, connections: int, kinds: Sequence[str]) -> dict[str, float]:
    """Measure a process alone, under attack, and alone again."""
    calm = Probe(attacked.ports)
    before = await calm.beside(attacked, f"work {seconds / 3}")
    quiet = await asyncio.to_thread(attacked.command, "figures")
    log_before = attacked.log.stat().st_size
    probe = Probe(attacked.ports)
    with attacking(attacked, connections, kinds):
        under = await probe.beside(attacked, f"work {seconds}")
        attacked_figures = await asyncio.to_thread(attacked.command, "figures")
    log_bytes = attacked.log.stat().st_size - log_before
    after = await calm.beside(attacked, f"work {seconds / 3}")
    alone = (before["throughput"] + after["throughput"]) / 2
    return {
        "health p99, s": compute_p99(probe.seconds),
        "health longest, s": max(probe.seconds),
        "health p99 without attackers, s": compute_p99(calm.seconds),
        "health asked": len(probe.seconds),
        "health unanswered": probe.unanswered,
        "lapses of the lease": attacked_figures["lapses"],
        "longest pause of renewals, s": attacked_figures["longest"],
        "w1 alone, tasks/s": alone,
        "w1 under attack, tasks/s": under["throughput"],
        "w1 with attackers / without": under["throughput"] / alone,
        "the same by processor time": 2 * under["per_cpu"] / (before["per_cpu"] + after["per_cpu"]),
        "memory growth, MB": attacked_figures["memory"] - quiet["memory"],
        "log, kB": log_bytes / 1_000,
    }


def run_store(
    store: str,
    seconds: float,
    connections: int,
    kinds: Sequence[str],
    lease_seconds: float = LEASE_SECONDS,
) -> dict[str, float]:
    """Measure on one kind of store, in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder, Server.start() if store == "postgres" else nullcontext() as server:
        url = None if server is None else server.create_database("hostile")
        attacked = Attacked(Path(folder), url, lease_seconds)
        try:
            return asyncio.run(measure(attacked, seconds, connections, kinds))
        finally:
            attacked.end()


@click.command(help=__doc__)
@click.option("--stores", default=",".join(STORES), show_default=True, help="The state stores.")
@click.option("--seconds", default=60.0, show_default=True, help="How long the attack lasts.")
@click.option("--connections", default=100, show_default=True, help="Hostile connections of each kind.")
@click.option("--kinds", default=",".join(KINDS), show_default=True, help="Kinds of hostile connections.")
@click.option("--require", is_flag=True, help="Exit 1 if a goal is missed.")
def main(stores: str, seconds: float, connections: int, kinds: str, require: bool) -> None:
    missed = 0
    for store in stores.split(","):
        load = os.getloadavg()[0]
        figures = run_store(store, seconds, connections, kinds.split(","))
        click.echo(f"{store}: {connections} connections of each kind for {seconds:g} s; load before {load:.1f}")
        for name, value in figures.items():
            reached, goal = (GOALS[name][0](value), f"goal: {GOALS[name][1]}") if name in GOALS else (True, "")
            missed += not reached
            click.echo(f"  {name:32} {value:10.2f}  {goal}{'' if reached else ', MISSED'}".rstrip())
    if missed and require:
        sys.exit(1)


if __name__ == "__main__":
    main()
