"""Tracks from which the rows of a timeline are made: each collects the bars of one row while the history is read."""

from collections.abc import Iterator

from msgspec.structs import replace

from ..model import Instant
from .timeline_shapes import BarKind, BarOutcome, TimelineBar, TimelineRow

BARS_MAX = 40  # of a row: more than a terminal or a page can show beside each other
_WAITS = {"timer": BarKind.SLEEP, "question": BarKind.QUESTION}  # and of all others a signal
_WORTH_A_TIME = frozenset((BarKind.WAIT, BarKind.DELAY, BarKind.RUN))  # left out where they took none
_ATTEMPTS = frozenset((BarKind.ATTEMPT, BarKind.UNDO, BarKind.CHILD))


class BarTrack:
    """Bars that follow each other; one of them may be open. The earliest are merged when there are too many."""

    def __init__(self) -> None:
        self.bars: list[TimelineBar] = []
        self._open: TimelineBar | None = None

    @property
    def open_kind(self) -> BarKind | None:
        """The kind of the open bar; None: none is open."""
        return None if self._open is None else self._open.kind

    def begin(self, kind: BarKind, at: Instant, label: str, *, attempt: int = 0, until: Instant | None = None) -> None:
        """Begin a bar; the open one ends here."""
        self.end(at)
        self._open = TimelineBar(kind, at, None, label, attempt, BarOutcome.OPEN, until=until)

    def end(self, at: Instant, outcome: BarOutcome = BarOutcome.NONE) -> None:
        """End the open bar; nothing happens if none is open."""
        if self._open is not None:
            for bar in _close(self._open, at, outcome):
                if bar.kind not in _WORTH_A_TIME or bar.start != bar.end:
                    self._add(bar)
            self._open = None

    def extend(self, until: Instant) -> None:
        """Give the open bar more time."""
        if self._open is not None:
            self._open = replace(self._open, until=until)

    def change_last(self, attempt: int, outcome: BarOutcome) -> None:
        """Say how an attempt ended that has a bar already."""
        for at in range(len(self.bars) - 1, -1, -1):
            bar = self.bars[at]
            if bar.kind in _ATTEMPTS and (bar.attempt == attempt or not attempt):
                self.bars[at] = replace(bar, outcome=outcome)
                return

    def list_all(self, now: Instant) -> tuple[TimelineBar, ...]:
        """List the bars, with the open one as it stands ``now``."""
        still = () if self._open is None else tuple(_split(self._open, now))
        return (*self.bars, *still)

    def _add(self, bar: TimelineBar) -> None:
        self.bars.append(bar)
        if len(self.bars) > BARS_MAX:
            first, second, *rest = self.bars
            self.bars = [_merge(first, second), *rest]


def _merge(first: TimelineBar, second: TimelineBar) -> TimelineBar:
    count = first.count + second.count
    end = first.start if second.end is None else max(first.start, second.end)
    return TimelineBar(BarKind.MERGED, first.start, end, f"{count} earlier", count=count)


def _close(bar: TimelineBar, at: Instant, outcome: BarOutcome) -> Iterator[TimelineBar]:
    """The parts of a bar that ends: a delay that is over before is followed by a wait."""
    end, until = max(at, bar.start), bar.until
    if bar.kind is BarKind.DELAY and until is not None and until < end:
        if until > bar.start:
            yield TimelineBar(BarKind.DELAY, bar.start, until, bar.label, until=until)
        yield TimelineBar(BarKind.WAIT, max(until, bar.start), end, "waits for its turn", outcome=outcome)
    else:
        yield replace(bar, end=end, outcome=outcome)


def _split(bar: TimelineBar, now: Instant) -> Iterator[TimelineBar]:
    """The parts of a bar that is still open."""
    until = bar.until
    if bar.kind is BarKind.DELAY and until is not None and bar.start < until <= now:
        yield TimelineBar(BarKind.DELAY, bar.start, until, bar.label, until=until)
        yield TimelineBar(BarKind.WAIT, until, None, "waits for its turn", outcome=BarOutcome.OPEN)
    else:
        yield bar


class RowTrack:
    """One row: of a step, or of the task, whose ordinal is 0."""

    def __init__(self, ordinal: int, kind: str, label: str, agent: str = "", undoes: int | None = None) -> None:
        self.ordinal = ordinal
        self.kind = kind
        self.label = label
        self.agent = agent
        self.undoes = undoes
        self.state = "pending"
        self.attempts = 0
        self.track = BarTrack()
        self.doubt = BarTrack()

    @property
    def attempt_kind(self) -> BarKind:
        """The kind of the bars of its attempts."""
        if self.kind == "child" or not self.agent:
            return BarKind.CHILD
        return BarKind.UNDO if self.kind == "compensation" else BarKind.ATTEMPT

    def wait(self, at: Instant, until: Instant | None = None) -> None:
        """Begin to wait: for the Agent, for the task that does it, or for what a timer or a wait of the code is for."""
        if self.kind not in ("step", "compensation", "child"):
            kind = _WAITS.get(self.kind, BarKind.SIGNAL)
            self.track.begin(kind, at, f"waits for {self.label}", until=until)
        elif self.agent and self.kind != "child":
            self.track.begin(BarKind.WAIT, at, f"waits for Agent {self.agent}")
        else:
            self.track.begin(BarKind.CHILD, at, "another task does it")

    def attempt(self, at: Instant, number: int, until: Instant) -> None:
        """Begin an attempt."""
        self.attempts = max(self.attempts, number)
        self.state = "running"
        self.track.begin(self.attempt_kind, at, f"attempt {number}", attempt=number, until=until)

    def set_doubt(self, at: Instant, *, in_doubt: bool) -> None:
        """Begin or end the doubt; nothing happens where it is so already."""
        if in_doubt and self.doubt.open_kind is None:
            self.doubt.begin(BarKind.DOUBT, at, "in doubt: it may have happened")
        elif not in_doubt:
            self.doubt.end(at)

    def finish(self, at: Instant, state: str, outcome: BarOutcome) -> None:
        """End the open bar: the row is in ``state`` from here on."""
        self.state = state
        self.track.end(at, outcome)

    def build(self, now: Instant, *, state: str, past: bool, in_doubt: bool) -> TimelineRow:
        """Build the row as it stands ``now``; the words are those of the stored row."""
        return TimelineRow(
            self.ordinal,
            self.label,
            self.kind,
            state,
            self.agent,
            self.attempts,
            in_doubt,
            past,
            self.undoes,
            self.track.list_all(now),
            self.doubt.list_all(now),
        )
