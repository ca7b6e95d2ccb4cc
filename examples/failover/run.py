"""The primary dies in the middle of commits; nobody is restarted, and nothing acknowledged is lost.

    python examples/failover/run.py --rounds 3 --submissions 500

A synchronous pair of PostgreSQL servers, the shop's processes and its clients on one URL with both hosts. In each round
the primary is killed (SIGKILL to all its processes), the standby promoted, and a new standby built in the place of the
old primary. Exits with 1 when anything acknowledged is lost, or when nothing was in flight at a kill.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from arriero.store import open_store  # noqa: E402
from arriero.testing.postgres import NotInstalled, ProgramFailed  # noqa: E402
from examples.failover.failing import Kill, fail_over  # noqa: E402  # found from the repository's root
from examples.failover.fleet import Fleet  # noqa: E402
from examples.failover.journal import What, acknowledged, in_flight, read_journal  # noqa: E402
from examples.failover.judge import judge  # noqa: E402
from examples.failover.look import Look, Numbers  # noqa: E402
from examples.failover.report import Report, Round  # noqa: E402
from examples.orders.processes import ProcessFailed, RemoteServices  # noqa: E402
from lab.postgres import Pair  # noqa: E402

CLIENTS = 3
SINCE_EACH = 10
"""Acknowledgements of each client after a fail-over before it counts as gone on."""
LOST_ON_PURPOSE = 50
DATABASE = "shop"


class Run:
    """One run: the pair, everything on it, and what was seen so far."""

    def __init__(self, folder: Path, options: argparse.Namespace, stack: ExitStack) -> None:
        self._folder = folder
        self._options = options
        self._began_at = time.monotonic()
        self.report = Report(options.version)
        self._say(f"starting a primary and its synchronous standby, PostgreSQL {options.version}")
        self._pair = stack.enter_context(Pair.start(options.version))
        self._pair.primary.create_database(DATABASE)
        self._url = self._pair.url(DATABASE)
        asyncio.run(_make_tables(self._url))
        self._look = Look(self._url)
        self._services = RemoteServices(folder, faults="none", seed=1, broken=None)
        stack.callback(self._services.process.kill)
        self._fleet = Fleet(folder, self._url, self._services.url)
        stack.callback(self._fleet.kill)
        self.report.processes = len(self._fleet.nodes) + CLIENTS * options.rounds

    def _say(self, text: str) -> None:
        seconds = time.monotonic() - self._began_at
        print(f"{seconds:6.1f} s  {text}", file=sys.stderr if self._options.json else sys.stdout, flush=True)

    def all(self) -> None:
        """All rounds, then the judgement; what stops it is a problem in the report."""
        try:
            self._fleet.wait_ready()
            for number in range(1, self._options.rounds + 1):
                if number > 1:
                    self._say("building a new standby in the place of the old primary")
                    self._pair.rebuild_standby()
                self.report.rounds.append(self._round(number))
            if not self._options.broken:  # then what was lost says enough
                self._judge()
        except (ProcessFailed, ProgramFailed) as failed:
            self.report.problems.append(str(failed))
        self.report.restarts_needed = self._fleet.ended_by_themselves

    def _round(self, number: int) -> Round:
        fleet, wanted = self._fleet, self._options.submissions
        self._say(f"round {number}: {CLIENTS} clients submit, {len(fleet.nodes)} processes work")
        journals = fleet.start_clients(CLIENTS, f"round-{number}")
        fleet.wait_until(
            lambda: _count(journals) >= wanted and all(_count([journal]) for journal in journals),
            f"fewer than {wanted} acknowledgements, or none of some client",
        )
        if self._options.broken:
            self._leave_the_standby_behind(journals)
        before = self._look.numbers()
        kill = fail_over(self._pair)
        self._say(f"  the primary is killed with {kill.commits} commits under way; the standby is promoted")
        self._wait_until_all_went_on(journals, kill)
        went_on_at = time.monotonic()
        fleet.stop_clients()
        if self._options.broken:
            self._say("  every process has gone on")
        else:
            self._say("  every process has gone on; waiting until every task has ended")
            fleet.wait_until(lambda: self._look.open_tasks() == 0, "not every task has ended")
        return self._measured(journals, kill, went_on_at, before)

    def _wait_until_all_went_on(self, journals: Sequence[Path], kill: Kill) -> None:
        def clients() -> bool:
            return all(
                len(list(acknowledged(read_journal(p), after=kill.promoting_at))) >= SINCE_EACH for p in journals
            )

        def nodes() -> bool:
            return self._look.went_on(kill.promoting_at_wall) >= len(self._fleet.nodes)

        self._fleet.wait_until(clients, "not every client was acknowledged again")
        self._fleet.wait_until(nodes, "not every process has gone on")

    def _measured(self, journals: Sequence[Path], kill: Kill, went_on_at: float, before: Numbers) -> Round:
        by_client = [read_journal(path) for path in journals]
        entries = [entry for each in by_client for entry in each]
        told = list(acknowledged(entries))
        states = self._look.states()
        first_end = self._look.first_end(kill.promoting_at_wall)
        return Round(
            acknowledged_before=sum(entry.at <= kill.at for entry in told),
            acknowledged=len(told),
            in_flight=sum(in_flight(each, kill.at) for each in by_client),
            commits_in_flight=kill.commits,
            unknown=sum(entry.what is What.UNKNOWN for entry in entries),
            failed=sum(entry.what is What.FAILED for entry in entries),
            lost=sum(id not in states for id in self._all_acknowledged()),
            gone_back=len(self._look.numbers().gone_back(before)),
            read_write_seconds=kill.read_write_at - kill.at,
            acknowledgement_seconds=min(entry.at for entry in told if entry.at > kill.promoting_at) - kill.at,
            completion_seconds=first_end - kill.at_wall,
            went_on_seconds=went_on_at - kill.at,
        )

    def _all_acknowledged(self) -> list[str]:
        """Over all rounds."""
        return [entry.order_id for path in self._fleet.journals for entry in acknowledged(read_journal(path))]

    def _judge(self) -> None:
        self._say("judging: books, history, tables")
        report = self.report
        report.begun_again = self._look.starts() - len(self._fleet.nodes)
        report.states = dict(Counter(self._look.states().values()))
        verdict = judge(self._folder, self._url, self._services.book, self._look.states(), self._all_acknowledged())
        report.effects, report.doubled = verdict.effects, verdict.doubled
        report.is_history_clean = verdict.is_history_clean
        report.problems += verdict.problems
        self._fleet.stop()

    def _leave_the_standby_behind(self, journals: Sequence[Path]) -> None:
        """The negative control: the standby is away, the primary does not wait for it, and clients go on."""
        self._say("  broken on purpose: the standby is away, and the primary does not wait for it")
        self._pair.standby.shut_down("immediate")
        self._pair.primary.configure(synchronous_standby_names="")
        wanted = _count(journals) + LOST_ON_PURPOSE
        self._fleet.wait_until(lambda: _count(journals) >= wanted, "the clients stand still")


def _count(journals: Sequence[Path]) -> int:
    return sum(len(list(acknowledged(read_journal(path)))) for path in journals)


async def _make_tables(url: str) -> None:
    store = open_store(url)
    await store.open()
    await store.close()


def main(arguments: Sequence[str]) -> int:
    """Run it. Returns: the exit code."""
    parser = argparse.ArgumentParser(description="Kill the primary under load; count what is lost.")
    parser.add_argument("--rounds", type=int, default=1, help="how many fail-overs, one after the other")
    parser.add_argument("--version", type=int, default=16, help="the major version of PostgreSQL")
    parser.add_argument("--submissions", type=int, default=500, help="acknowledged in each round before the kill")
    parser.add_argument("--json", action="store_true", help="print figures to standard output, and nothing else there")
    parser.add_argument("--break", dest="broken", choices=["synchronous"], help="must be found out: exits with 1")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, _end)
    try:
        with tempfile.TemporaryDirectory(prefix="arriero-failover-") as folder, ExitStack() as stack:
            run = Run(Path(folder), options, stack)
            run.all()
    except NotInstalled as error:
        print(error, file=sys.stderr)
        return 2
    if options.json:
        print(json.dumps(run.report.figures(), indent=2))
    else:
        print(*run.report.words(), sep="\n")
    return 0 if run.report.is_success else 1


def _end(number: int, frame: FrameType | None) -> None:
    """SIGTERM unwinds the stack as Ctrl-C does, so that nothing is left behind."""
    raise SystemExit(128 + number)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
