"""Convoys in all stores: the place of a submission, and the missing numbers of a sequence."""

from collections.abc import Iterable
from functools import partial
from typing import Protocol

from ...core.deduplication import answer_known_sequence
from ...core.placement import Spot, build_first_convoy, build_first_tail, needs_convoy, refuse_place
from ...model import ConvoyRow, Instant, LedgerRow, TailRow, TaskRow
from ...model.answers import Refusal, Submitted
from ...model.commands import Advance, AnyCommand, Submit
from ...model.moves import ENDS
from .ledgers import refuse_reserved

LOOKS_MAX = 100  # convoys that one claim looks at before it claims
KNOWN_MAX = 100_000  # numbers of one sequence that are looked through for what is missing


def list_ending_turns(batch: Iterable[AnyCommand]) -> list[int]:
    """Numbers of the convoys in which a command may end the task whose turn it is."""
    return [
        command.convoy_no
        for command in batch
        if isinstance(command, Advance) and command.convoy_no is not None and isinstance(command.ending, ENDS)
    ]


class PlacementRows(Protocol):
    """Rows that placing a task needs."""

    def convoy(self, convoy_no: int) -> ConvoyRow: ...

    def find_by_sequence(self, convoy_no: int, sequence: int) -> TaskRow | None:
        """The task of a convoy with a number of its producer's sequence."""
        ...

    def load_submitted(self, task_no: int) -> str | None:
        """The arguments with which a known task was submitted, as JSON text."""
        ...

    def next_convoy_no(self) -> int: ...
    def ledger(self, ledger_no: int) -> LedgerRow | None: ...

    def read_expected(self, convoy_no: int) -> int:
        """The next number of a convoy's sequence."""
        ...


def find_spot(
    command: Submit, tail: TailRow | None, places: PlacementRows, now: Instant
) -> Spot | Submitted | Refusal | None:
    """Find the place of a new task; None: it is in no convoy. An answer instead: its sequence is used, or it cannot stand there.

    ``tail``: of the convoy that the command names, as it stands; None: there is none yet.
    """
    if command.convoy is None:
        return None
    if tail is None:
        tail = build_first_tail(places.next_convoy_no(), command)
        return refuse_place(command, tail) or Spot(tail, build_first_convoy(tail, now))
    if command.sequence is not None and tail.ordering == "sequence":
        known = places.find_by_sequence(tail.convoy_no, command.sequence)
        if known is not None:
            submitted = partial(places.load_submitted, known.task_no)
            return refuse_reserved(known, places.ledger) or answer_known_sequence(known, command, submitted, tail)
    if (refused := refuse_place(command, tail)) is not None:
        return refused
    expected = 1 if command.sequence is None else places.read_expected(tail.convoy_no)
    return Spot(tail, places.convoy(tail.convoy_no) if needs_convoy(command, tail, expected) else None)


def find_missing(known: Iterable[int], expected: int, tail: TailRow, limit: int) -> tuple[tuple[int, int], ...]:
    """Find the numbers from ``expected`` on that have not come, up to the end mark or else the last that came.

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
