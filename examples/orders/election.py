"""The Supervisors of ``--supervisors``: processes of their own, of which the one that leads is killed again and again.

The others must go on under a later term. The demonstration reads from the store who leads, kills that process, starts another in
its place, and measures how long nobody led. It does not end before all kills are done and somebody leads.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from arriero.text.format import format_count, format_duration

from .places import Place
from .processes import Supervisor

LEADER_KILLED = "leader_killed"
"""The name of this fault, among those of the services."""
LEADER_KILLS = 3
BEGINS_FROM = 0.1
"""The share of the orders that have ended at the first kill; the others are spread over the next orders."""
EVERY = 0.2
LEADER = (
    "SELECT process.instance, lease.term FROM {lease} AS lease JOIN {process} AS process"
    " ON process.process_no = lease.holder WHERE lease.name = 'supervisor'"
)


REGISTERED = "SELECT instance FROM {process} WHERE NOT retired"


@dataclass(frozen=True)
class ElectionReport:
    """How the election went.

    Attributes:
        supervisors: processes.
        kills: of the leading one.
        changes: how often another process led than before.
        longest_gap_seconds: the longest time without a leader after a kill, measured to a twentieth of a second.
    """

    supervisors: int
    kills: int
    changes: int
    longest_gap_seconds: float


class ElectionCourse:
    """The election of a demonstration as it goes.

    Args:
        count: Supervisors that run.
        orders: of the ledger.
        announce: shows a line to people.
    """

    def __init__(self, count: int, folder: Path, place: Place, orders: int, announce: Callable[[str], None]) -> None:
        self._count = count
        self._folder = folder
        self._place = place
        self._orders = orders
        self._announce = announce
        self._supervisors: list[Supervisor] = []  # none before the store is there: it is no Supervisor who makes it
        self.kills = 0
        self._gaps: list[float] = []
        self._lost_at: float | None = None
        self._are_all_there = False
        self._led: tuple[str, int] = ("", 0)  # by whom, and under which term
        self._changes = 0
        self._has_told_of_the_wait = False

    def look(self, ended: int) -> None:
        """See who leads, and kill that process if its time has come.

        Args:
            ended: orders that have ended so far.
        Raises: NotReadable; ProcessFailed - a Supervisor ended by itself.
        """
        while len(self._supervisors) < self._count:
            name = f"supervisor-{len(self._supervisors) + 1}"
            self._supervisors.append(Supervisor(name, self._folder, self._place.url))
        for supervisor in self._supervisors:
            supervisor.check()
        leader = self._find_leader()
        if leader is not None and self._is_kill_due(ended):
            self._kill(leader)

    def _find_leader(self) -> Supervisor | None:
        """The process that leads; None: it was killed, and nobody has followed."""
        with self._place.reading() as connection:
            found = connection.execute(LEADER.format(**self._place.tables)).fetchall()
            registered = [row[0] for row in connection.execute(REGISTERED.format(**self._place.tables)).fetchall()]
        self._are_all_there = all(any(map(one.is_named, registered)) for one in self._supervisors)
        for instance, term in found:
            leader = next((one for one in self._supervisors if one.is_named(instance)), None)
            if leader is not None:
                self._note_leader(instance, term)
                return leader
        return None

    def _note_leader(self, instance: str, term: int) -> None:
        if term == self._led[1]:
            return
        if self._lost_at is not None:
            self._gaps.append(time.monotonic() - self._lost_at)
            self._lost_at = None
            self._announce(f"another Supervisor leads under term {term}, after {format_duration(self._gaps[-1])}")
        self._changes += self._led[0] not in ("", instance)
        self._led = (instance, term)

    def _is_kill_due(self, ended: int) -> bool:
        share = min(1.0, BEGINS_FROM + EVERY * self.kills)
        return self.kills < LEADER_KILLS and ended >= int(share * self._orders)

    def _kill(self, leader: Supervisor) -> None:
        self._announce(f"the leading Supervisor, {leader.name}, is killed")
        leader.kill()
        self._lost_at = time.monotonic()
        self.kills += 1
        leader.start()
        self._are_all_there = False

    @property
    def is_settled(self) -> bool:
        """Whether the leader was killed as often as planned, somebody leads, and all have begun: who begins cannot be asked to end."""
        return self.kills == LEADER_KILLS and self._lost_at is None and self._are_all_there

    def note_all_ended(self) -> None:
        """Report once why the demonstration continues, though every order has ended."""
        if not self._has_told_of_the_wait:
            self._has_told_of_the_wait = True
            self._announce(f"every order has ended; the demo waits until the leader was killed {LEADER_KILLS} times")

    def kill(self) -> None:
        """Kill all Supervisors: the demonstration ends early, or they have ended."""
        for supervisor in self._supervisors:
            supervisor.kill()

    def stop(self) -> None:
        """Have all Supervisors end. Raises: ProcessFailed - one does not, or not with 0."""
        for supervisor in self._supervisors:
            supervisor.ask_to_stop()
        for supervisor in self._supervisors:
            supervisor.wait_stopped()

    def report(self) -> ElectionReport:
        """What has happened so far."""
        gap = max(self._gaps, default=0.0)
        return ElectionReport(self._count, self.kills, self._changes, gap)


def find_election_problems(report: ElectionReport | None) -> Sequence[str]:
    """Find what was planned and did not happen; none without ``--supervisors``."""
    if report is None or report.kills == LEADER_KILLS:
        return ()
    return (f"only {report.kills} of {LEADER_KILLS} kills found a Supervisor that led",)


def as_election_figures(report: ElectionReport) -> dict[str, object]:
    """The report as JSON figures by name."""
    return {
        "supervisors": report.supervisors,
        "leader_kills": report.kills,
        "leader_kills_planned": LEADER_KILLS,
        "leader_changes": report.changes,
        "longest_gap_seconds": round(report.longest_gap_seconds, 2),
    }


def describe_election(report: ElectionReport) -> Iterator[str]:
    """Lines for people."""
    yield (
        f"election: {format_count(report.supervisors, 'Supervisor')}, the leading one killed {report.kills} of {LEADER_KILLS}"
        f" times; the leader changed {format_count(report.changes, 'time')}, nobody led for"
        f" {format_duration(report.longest_gap_seconds)} at most"
    )
