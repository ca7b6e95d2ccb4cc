"""Counts of the calls that Agents made: how they are added up, for how long each minute is kept, how quantiles are read.

A process keeps the counts of each minute and writes them as they stand, never as a difference. So a write that is repeated
changes nothing. A minute is folded into the sum of its App only when nobody may write it any longer. So no call counts twice.
"""

from bisect import bisect_left
from collections.abc import Sequence

import msgspec

from ..inspection.facts import CountsRow
from ..model import MICROSECONDS, Instant

MINUTE = 60 * MICROSECONDS
WINDOWS = (1, 10, 60)  # minutes that operators look back
KEPT_MINUTES = 61  # the longest window, and the minute that has just begun
# A process may write a minute for so long. What the store has not taken by then is lost. The ten minutes until the minute is
# folded are longer than any transaction lasts: a write that began in time has ended by then.
WRITABLE_MINUTES = KEPT_MINUTES - 10
OUTCOMES = ("succeeded", "transient", "permanent", "unknown", "expired")
# Upper bounds of the histogram in milliseconds. Neighbours differ by a factor of two at most, and common timeouts are bounds.
BOUNDS_MS = (
    *(
        1,
        2,
        3,
        5,
        7,
        10,
        15,
        20,
        30,
        50,
        70,
        100,
        150,
        200,
        300,
        500,
        700,
        1_000,
        1_500,
        2_000,
        3_000,
        5_000,
        7_000,
        10_000,
    ),
    *(15_000, 20_000, 30_000, 45_000, 60_000, 90_000, 120_000, 180_000, 300_000),
)
BOUNDS_SECONDS = tuple(bound / 1000 for bound in BOUNDS_MS)
_KEYS = (*BOUNDS_MS, 0)  # the last one: longer than all bounds


class AgentCounts(msgspec.Struct, omit_defaults=True):
    """Calls of one Agent that ended, added up.

    Attributes:
        outcomes: how many ended in each way of ``OUTCOMES``.
        seconds: how long all took together.
        buckets: how many took at most that many milliseconds, and longer than the bound before; 0: longer than all bounds.
            The bounds themselves are the keys, so a release with other bounds can read them.
    """

    outcomes: dict[str, int] = {}
    seconds: float = 0.0
    buckets: dict[int, int] = {}

    def add_call(self, outcome: str, seconds: float) -> None:
        """Add one call."""
        outcomes, buckets = self.outcomes, self.buckets
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
        key = _KEYS[bisect_left(BOUNDS_SECONDS, seconds)]
        buckets[key] = buckets.get(key, 0) + 1
        self.seconds += seconds

    def add_counts(self, other: "AgentCounts") -> None:
        """Add the calls of another count, which stays as it is."""
        for outcome, count in other.outcomes.items():
            self.outcomes[outcome] = self.outcomes.get(outcome, 0) + count
        for key, count in other.buckets.items():
            self.buckets[key] = self.buckets.get(key, 0) + count
        self.seconds += other.seconds

    @property
    def calls(self) -> int:
        """All calls."""
        return sum(self.outcomes.values())

    def list_buckets(self) -> tuple[int, ...]:
        """List the calls within each of ``BOUNDS_MS`` and above the bound before; the last number: longer than all."""
        found = [0] * len(_KEYS)
        for key, count in self.buckets.items():
            found[bisect_left(BOUNDS_MS, key) if key > 0 else -1] += count
        return tuple(found)


CountsByAgent = dict[str, AgentCounts]
decode_counts = msgspec.json.Decoder(CountsByAgent).decode
_read_each = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_read_one = msgspec.json.Decoder(AgentCounts).decode


def encode_counts(counts: CountsByAgent) -> str:
    """Encode counts as a row keeps them."""
    return msgspec.json.encode(counts).decode()


def read_counts(text: str, agent: str | None = None) -> CountsByAgent:
    """Read counts from a row. What this release cannot read counts as no call: nobody's work depends on it.

    Args:
        agent: only this one; None: all.
    """
    try:
        if agent is None:
            return decode_counts(text)
        found = _read_each(text).get(agent)
        return {} if found is None else {agent: _read_one(found)}
    except (msgspec.DecodeError, TypeError):  # ValidationError is a DecodeError
        return {}


def find_minute(now: Instant) -> int:
    """Return the minute in which an instant lies."""
    return now // MINUTE


def may_be_written(minute: int, now: Instant) -> bool:
    """Returns True if the counts of a minute may still be written."""
    return minute >= find_minute(now) - WRITABLE_MINUTES


def find_first_kept(now: Instant) -> int:
    """Return the first minute that is kept by itself. Those before are folded into the sum of their App."""
    return find_minute(now) - KEPT_MINUTES


def fold_counts(total: CountsRow, old: Sequence[CountsRow]) -> CountsRow:
    """Add old minutes of an App to its sum."""
    counts = read_counts(total.counts)
    for row in old:
        for agent, of_minute in read_counts(row.counts).items():
            counts.setdefault(agent, AgentCounts()).add_counts(of_minute)
    return CountsRow(
        app=total.app,
        process_no=0,
        minute=0,
        calls=sum(of_agent.calls for of_agent in counts.values()),
        counts=encode_counts(counts),
    )


class CountsOfAgent(msgspec.Struct, frozen=True):
    """The calls of one Agent. ``recent``: of each window of ``WINDOWS``; ``total``: all that were ever counted."""

    recent: tuple[AgentCounts, ...]
    total: AgentCounts


class CountsSum:
    """The sum of the rows of all processes and minutes. A window holds the minute of ``now`` and that many before.

    Rows are added one by one, because a store may have a number so large that its reader must let others work in between.

    Args:
        agent: only this one is added up; None: all.
    """

    def __init__(self, now: Instant, agent: str | None = None) -> None:
        self._starts = [find_window_start(now, minutes) // MINUTE for minutes in WINDOWS]
        self._agent = agent
        # By App and Agent: what is in the first window, what only in the second, and so on; and what is in none.
        self._parts: dict[tuple[str, str], list[AgentCounts]] = {}

    def add_row(self, row: CountsRow) -> None:
        """Add a row."""
        part = self._find_part(row)
        for name, counts in read_counts(row.counts, self._agent).items():
            parts = self._parts.get((row.app, name))
            if parts is None:
                parts = self._parts[row.app, name] = [AgentCounts() for _ in range(len(WINDOWS) + 1)]
            parts[part].add_counts(counts)

    def _find_part(self, row: CountsRow) -> int:
        if row.process_no:
            for number, start in enumerate(self._starts):
                if row.minute >= start:
                    return number
        return len(self._starts)

    def read(self) -> dict[tuple[str, str], CountsOfAgent]:
        """Read the sum by App and Agent; only those that were called."""
        found = {}
        for key, parts in self._parts.items():
            sums = [AgentCounts()]
            for part in parts:  # each window holds the shorter ones
                sums.append(AgentCounts())
                sums[-1].add_counts(sums[-2])
                sums[-1].add_counts(part)
            found[key] = CountsOfAgent(tuple(sums[1:-1]), sums[-1])
        return found


class MinuteCounts:
    """The calls of one Agent in each of the last minutes; rows are added one by one, as to ``CountsSum``.

    Args:
        agent: only this one; None: all of an App together.
    """

    def __init__(self, now: Instant, agent: str | None) -> None:
        self._last = find_minute(now)
        self._agent = agent
        self._minutes: dict[str, list[AgentCounts]] = {}

    def add_row(self, row: CountsRow) -> None:
        """Add a row, unless its minute is no longer kept by itself, or lies ahead."""
        ago = self._last - row.minute
        if not row.process_no or not 0 <= ago < KEPT_MINUTES:
            return
        for counts in read_counts(row.counts, self._agent).values():
            minutes = self._minutes.get(row.app)
            if minutes is None:
                minutes = self._minutes[row.app] = [AgentCounts() for _ in range(KEPT_MINUTES)]
            minutes[-1 - ago].add_counts(counts)

    def read(self) -> dict[str, list[AgentCounts]]:
        """Read the minutes by App, the oldest first; the last one has just begun. Only Apps with a call."""
        return self._minutes

    @property
    def first_minute(self) -> int:
        """The number of the oldest minute."""
        return self._last - KEPT_MINUTES + 1


def find_window_start(now: Instant, minutes: int) -> Instant:
    """Return the instant from which on the calls of a window are counted."""
    return Instant((find_minute(now) - minutes) * MINUTE)


def estimate_quantile(buckets: Sequence[int], share: float) -> float | None:
    """Estimate within how many seconds a share of the calls ended, as if those of a bucket were spread evenly over it.

    Args:
        buckets: as ``AgentCounts.list_buckets`` gives them.
        share: in (0, 1].
    Returns: seconds; the last bound if it lies beyond; None without a call.
    """
    rank = share * sum(buckets)
    if not rank:
        return None
    below, lower = 0, 0.0
    for count, upper in zip(buckets, BOUNDS_SECONDS, strict=False):
        if count and below + count >= rank:
            return lower + (upper - lower) * (rank - below) / count
        below, lower = below + count, upper
    return BOUNDS_SECONDS[-1]
