"""What a run showed, as figures by name and for people."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field

LISTED_MAX = 20


@dataclass(frozen=True)
class Round:
    """One fail-over. Seconds are counted from the kill; the standby is promoted at once."""

    acknowledged_before: int
    acknowledged: int
    in_flight: int
    commits_in_flight: int
    unknown: int
    failed: int
    lost: int
    gone_back: int
    read_write_seconds: float
    acknowledgement_seconds: float
    completion_seconds: float
    went_on_seconds: float


@dataclass
class Report:
    """All rounds, and what was judged at their end."""

    version: int
    processes: int = 0
    restarts_needed: int = 0
    begun_again: int = 0
    rounds: list[Round] = field(default_factory=list)
    states: dict[str, int] = field(default_factory=dict)
    effects: int = 0
    doubled: int = 0
    is_history_clean: bool = False
    problems: list[str] = field(default_factory=list)

    @property
    def is_success(self) -> bool:
        return (
            bool(self.rounds)
            and all(each.in_flight and each.commits_in_flight for each in self.rounds)
            and not any(each.lost or each.gone_back for each in self.rounds)
            and self.is_history_clean
            and not (self.doubled or self.restarts_needed or self.problems)
        )

    def figures(self) -> dict[str, object]:
        """As JSON."""
        sums = {
            name: sum(getattr(each, name) for each in self.rounds)
            for name in ("acknowledged", "in_flight", "commits_in_flight", "lost", "gone_back")
        }
        return {"ok": self.is_success, **asdict(self), **sums}

    def words(self) -> Iterator[str]:
        """For people, line by line."""
        for number, each in enumerate(self.rounds, 1):
            yield (
                f"fail-over {number}: {each.acknowledged:,} acknowledged ({each.acknowledged_before:,} before the kill),"
                f" {each.in_flight} in flight at the kill with {each.commits_in_flight} commits under way,"
                f" {each.lost} lost, {each.gone_back} fences or terms gone back"
            )
            yield (
                f"  after the kill: read-write in {each.read_write_seconds:.2f} s, first acknowledgement in"
                f" {each.acknowledgement_seconds:.2f} s, first task completed in {each.completion_seconds:.2f} s,"
                f" every process went on in {each.went_on_seconds:.2f} s; clients were told"
                f" {each.unknown} times that an outcome is unknown, {each.failed} times that the store cannot answer"
            )
        if self.states:  # else nothing was judged
            ended = ", ".join(f"{count:,} {state}" for state, count in self.states.items())
            yield (
                f"tasks: {ended}; {self.effects:,} effects at the services, {self.doubled} doubled;"
                f" history {'clean and equal to the tables' if self.is_history_clean else 'NOT clean'}"
            )
        yield (
            f"{self.processes} processes, {self.restarts_needed} restarted,"
            f" {self.begun_again} declared lost and begun again by themselves"
        )
        yield from self.problems[:LISTED_MAX]
        if len(self.problems) > LISTED_MAX:
            yield f"... and {len(self.problems) - LISTED_MAX:,} more problems"
        yield "Nothing acknowledged was lost." if self.is_success else "The run is NOT a success."
