"""What the stores share about convoys: where a submission stands, and what of a sequence is missing."""

from collections.abc import Iterable
from functools import partial
from typing import Protocol

from ..commands import ENDS, Advance, AnyCommand, Refusal, Submit, Submitted
from ..core.known import same_sequence
from ..core.placing import Spot, first_convoy, first_tail, needs_convoy, refused_place
from ..model import ConvoyRow, Instant, LedgerRow, TailRow, TaskRow
from .ledgers import reserved

LOOKS_MAX = 100  # convoys that one claim looks at before it claims
KNOWN_MAX = 100_000  # numbers of one sequence that are looked through for what is missing


def passed_on(batch: Iterable[AnyCommand]) -> list[int]:
    """Numbers of the convoys in which a command may end the task whose turn it is."""
    return [
        command.convoy_no
        for command in batch
        if isinstance(command, Advance) and command.convoy_no is not None and isinstance(command.ending, ENDS)
    ]


class Places(Protocol):
    """What a store must offer to whoever places a task."""

    def convoy(self, convoy_no: int) -> ConvoyRow: ...

    def of_sequence(self, convoy_no: int, sequence: int) -> TaskRow | None:
        """The task of a convoy with a number of its producer's sequence."""
        ...

    def submitted(self, task_no: int) -> str | None:
        """What a known task was submitted with, as JSON text."""
        ...

    def next_convoy_no(self) -> int: ...
    def ledger(self, ledger_no: int) -> LedgerRow | None: ...

    def expected(self, convoy_no: int) -> int:
        """The next number of a convoy's sequence."""
        ...


def spot_for(command: Submit, tail: TailRow | None, places: Places, now: Instant) -> Spot | Submitted | Refusal | None:
    """Where a new task stands; None: in no convoy. Or the answer: its sequence is used, or it cannot stand there.

    ``tail``: of the convoy that the command names, as it stands; None: there is none yet.
    """
    if command.convoy is None:
        return None
    if tail is None:
        tail = first_tail(places.next_convoy_no(), command)
        return refused_place(command, tail) or Spot(tail, first_convoy(tail, now))
    if command.sequence is not None and tail.ordering == "sequence":
        known = places.of_sequence(tail.convoy_no, command.sequence)
        if known is not None:
            submitted = partial(places.submitted, known.task_no)
            return reserved(known, places) or same_sequence(known, command, submitted, tail)
    if (refused := refused_place(command, tail)) is not None:
        return refused
    expected = 1 if command.sequence is None else places.expected(tail.convoy_no)
    return Spot(tail, places.convoy(tail.convoy_no) if needs_convoy(command, tail, expected) else None)


def missing_of(known: Iterable[int], expected: int, tail: TailRow, limit: int) -> tuple[tuple[int, int], ...]:
    """Which numbers from ``expected`` on have not come, up to the end mark or else the last that came.

    Args:
        known: numbers that came, ascending; those before ``expected`` are passed over.
    Returns: at most ``limit`` ranges, each (first, last).
    """
    if tail.ordering == "place":
        return ()
    ranges: list[tuple[int, int]] = []
    wanted = expected
    for number in known:
        if number < wanted:
            continue
        if number > wanted:
            ranges.append((wanted, number - 1))
        wanted = number + 1
    if tail.end_rank is not None and tail.end_rank >= wanted:
        ranges.append((wanted, tail.end_rank))
    return tuple(ranges[:limit])
