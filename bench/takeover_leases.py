"""How long a lease stays without a leader after its holder was killed. `python bench/takeover_leases.py --provider nats`.

Two contenders wait for one lease. The one that leads is killed with SIGKILL, at a moment of the renewal period that is drawn
at random, and the time until the other one leads is measured by the machine's monotonic clock. The bound is the duration,
if the holder had renewed just before its death, and one pause between two looks of the one who waits.
"""

import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from arriero.core.lease import build_settings

ROOT = Path(__file__).parents[1]
CONTENDER = Path(__file__).parent / "takeover_contender.py"
SETTLE_SECONDS = 1.0  # until the other contender has looked at least once
SEED = 1


class Contender:
    """A process of its own that waits for the lease, then leads."""

    def __init__(self, url: str, name: str, duration: float) -> None:
        arguments = [sys.executable, str(CONTENDER), url, name, str(duration)]
        self._process = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self._output = self._process.stdout
        self._output.readline()

    def wait_for_election(self) -> tuple[int, float]:
        """Wait until it leads. Returns the term, and when."""
        line = self._output.readline().split()
        if len(line) != 3:
            raise SystemExit("a contender ended: see above")
        return int(line[1]), float(line[2])

    def kill(self) -> None:
        """Kill it with SIGKILL."""
        self._process.kill()
        self._process.wait()
        self._output.close()


def measure_takeovers(url: str, name: str, duration: float, turns: int, chance: random.Random) -> list[float]:
    """Seconds from each kill until the other contender leads. Fails if a term does not grow."""
    renew_every = build_settings(duration, None, name).renew_every
    leader = Contender(url, name, duration)
    waiting: Contender | None = None
    seconds = []
    try:
        term, _ = leader.wait_for_election()
        for _ in range(turns):
            waiting = Contender(url, name, duration)
            time.sleep(SETTLE_SECONDS + chance.random() * renew_every)
            killed_at = time.monotonic()
            leader.kill()
            next_term, elected_at = waiting.wait_for_election()
            if next_term <= term:
                raise SystemExit(f"term {next_term} came after {term}")
            leader, waiting, term = waiting, None, next_term
            seconds.append(elected_at - killed_at)
    finally:
        leader.kill()
        if waiting is not None:
            waiting.kill()
    return seconds


@contextmanager
def start_provider(provider: str) -> Iterator[str]:
    """Start a server of the provider. Gives the URL for leases on it."""
    if provider == "sqlite":
        with tempfile.TemporaryDirectory() as folder:
            yield f"sqlite:///{folder}/leases.db"
        return
    sys.path.insert(0, str(ROOT))
    from lab.lease_servers import start_lease_server

    with start_lease_server(provider) as url:
        yield url


def print_figures(provider: str, duration: float, seconds: list[float]) -> None:
    """Print one row of figures under its head."""
    bound = duration + build_settings(duration, None, provider).poll_every
    print("| provider | duration | turns | p50 | p100 | bound |")
    print("|---|---|---|---|---|---|")
    figures = f"{statistics.median(seconds):.2f} s | {max(seconds):.2f} s | {bound:.2f} s"
    print(f"| {provider} | {duration:g} s | {len(seconds)} | {figures} |")


@click.command(help=__doc__)
@click.option(
    "--provider", type=click.Choice(["azure", "etcd", "nats", "sqlite", "zookeeper"]), help="start its server"
)
@click.option("--url", help="or use leases at this URL, as of open_lease")
@click.option("--turns", default=10, show_default=True, type=click.IntRange(min=1), help="kills")
@click.option("--duration", type=float, help="of the lease, seconds  [default: 15]")
def main(provider: str | None, url: str | None, turns: int, duration: float | None) -> None:
    if (provider is None) == (url is None):
        raise click.UsageError("give --provider or --url")
    length = 15.0 if duration is None else duration
    chance = random.Random(SEED)
    name = f"takeover-{os.getpid()}"
    if url is not None:
        print_figures(url.partition(":")[0], length, measure_takeovers(url, name, length, turns, chance))
    elif provider is not None:
        with start_provider(provider) as started:
            print_figures(provider, length, measure_takeovers(started, name, length, turns, chance))


if __name__ == "__main__":
    main()
