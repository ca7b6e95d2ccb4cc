"""The events of a convoy in their order, and what they say against the convoy's row.

They stand in the streams of its tasks and in one of its own, and carry numbers: rows of one commit stand in the order of
their tasks, and rows of commits that do not depend on each other may stand between them. So they are folded by number.
"""

from collections.abc import Sequence

from ..events import Event, EventOfConvoy, EventOfTurn, UnreadableEvent, list_event_types
from ..events.convoy import ConvoyBatched, ConvoyContinued, ConvoyPlaced, NumberedEvent
from ..model import ConvoyRow, ConvoyState
from .fold import UNREADABLE, TaskFold
from .fold_batches import fold_batch_of_key, judge_ends
from .fold_turns import ConvoyFold, StreamEvent, fold_key_event, fold_turn_of_key, place_task, plain

_OWN_TYPES = list_event_types(EventOfConvoy)


def read_convoy_number(event: Event | UnreadableEvent) -> int | None:
    """Return the number of the convoy that an event is about, as far as that can be read."""
    if isinstance(event, UnreadableEvent):
        found = event.fields.get("convoy")
        return found if isinstance(found, int) else None
    return event.convoy if isinstance(event, ConvoyPlaced | NumberedEvent) else None


def _number_of(event: Event | UnreadableEvent) -> int | None:
    if isinstance(event, UnreadableEvent):
        found = event.fields.get("number")
        return found if isinstance(found, int) else None
    return event.number if isinstance(event, NumberedEvent) else None


class ConvoyStream:
    """Brings the events of one convoy into their order and folds them. ``fold``: as far as they follow each other."""

    def __init__(self, convoy_no: int) -> None:
        self.fold = ConvoyFold(convoy_no)
        self.is_torn = False  # events in between no longer exist, with tasks that were removed
        self._ahead: dict[int, StreamEvent] = {}  # found, but not what comes before it

    def row_of_task(self, task: TaskFold, at: int, events: Sequence[Event | UnreadableEvent]) -> None:
        """Add a commit of one of its tasks, which the task has folded before."""
        for event in events:
            if read_convoy_number(event) != self.fold.convoy_no:
                continue
            if isinstance(event, ConvoyPlaced):
                place_task(self.fold, task, event)
            elif isinstance(event, UnreadableEvent) and event.type == "convoy.placed":
                self._report_unreadable(event)
            else:
                if isinstance(event, ConvoyContinued):
                    self.fold.line.continue_at(task, event)
                self._keep(at, task.task_no, event)

    def own_row(self, key: str, at: int, events: Sequence[Event | UnreadableEvent]) -> None:
        """Add a commit of its own stream."""
        self.fold.key = self.fold.key or key
        for event in events:
            if event.type not in _OWN_TYPES:
                self.fold.convict("I53", f"unknown event {event.type!r}")
            self._keep(at, 0, event)

    def end(self, *, purged: bool) -> None:
        """End the stream. ``purged``: tasks were removed, and their events with them."""
        fold = self.fold
        if self._ahead and not purged:
            fold.convict("I53", f"event {min(self._ahead)} follows event {fold.number}: some are missing")
        elif self._ahead:
            self.is_torn = True
            for number in sorted(self._ahead):
                self._fold(number)
        fold.judge_promise(None)
        judge_ends(fold)
        holes = fold.line.holes()
        if holes and not purged:
            fold.convict("I40", f"nothing was placed at {holes[0]}, but something behind it")
        fold.violations += [] if purged else fold.doubtful
        fold.doubtful, self._ahead = [], {}

    def _keep(self, at: int, task_no: int, event: Event | UnreadableEvent) -> None:
        number = _number_of(event)
        if number is None:
            self.fold.convict("I53", f"{event.type} has no number")
        elif number <= self.fold.number or number in self._ahead:
            self.fold.convict("I53", f"event {number} is there twice")
        else:
            self._ahead[number] = StreamEvent(at, task_no, len(self.fold.line), event)
            while self.fold.number + 1 in self._ahead:
                self._fold(self.fold.number + 1)

    def _fold(self, number: int) -> None:
        found = self._ahead.pop(number)
        event, fold = found.event, self.fold
        fold.judge_promise(found.at)
        fold.number = number
        try:
            if isinstance(event, UnreadableEvent):
                self._report_unreadable(event)
            elif found.task_no == 0:
                if isinstance(event, EventOfConvoy):
                    fold_key_event(fold, event, found.at, found.seen)
            else:
                member = fold.line.members.get(found.task_no)
                if member is not None and isinstance(event, ConvoyBatched):
                    fold_batch_of_key(fold, member, event, found.seen)
                elif member is not None and isinstance(
                    event, EventOfTurn
                ):  # else the fold of the task has convicted it
                    fold_turn_of_key(fold, member, event, found.seen)
        except UNREADABLE as error:
            fold.convict("I53", f"an event cannot be read: {type(error).__name__} {error}")

    def _report_unreadable(self, event: UnreadableEvent) -> None:
        if event.error:  # else it was convicted as unknown
            self.fold.convict("I53", f"an event cannot be read: {event.error}")

    # --- against the row
    def differences(self, row: ConvoyRow, *, purged: bool) -> list[str]:
        """Return the differences of the row (I52), and reasons why the convoy would be blocked indefinitely. After ``end``."""
        found = self._standing_still(row)
        if self.is_torn or (purged and row.number > self.fold.number):
            return found  # the events of removed tasks no longer exist
        return found + self._list_differences(row)

    def _list_differences(self, row: ConvoyRow) -> list[str]:
        fold = self.fold
        pairs: dict[str, tuple[object, object]] = {
            name: (getattr(row, name), getattr(fold, name)) for name in ("key", "number", "fence", "open_task")
        }
        pairs["state"] = (plain(row.state), plain(fold.state))
        pairs["parked"] = (row.parked_at is not None, fold.is_parked)
        found = [
            f"{name} is {there}, its history says {said}" for name, (there, said) in pairs.items() if there != said
        ]
        if not fold.expected <= row.expected <= fold.line.come_up_to(fold.expected, len(fold.line)):
            found.append(f"expected is {row.expected}, its history says {fold.expected}")
        told = {member.task.task_no for member in fold.line.members.values() if member.task.gap_alert}
        if told != {row.alerted_task} - {None}:
            found.append(f"alerted_task is {row.alerted_task}, its history records alerts for {sorted(told)}")
        return [f"convoy {row.key}: {text}" for text in found]

    def _standing_still(self, row: ConvoyRow) -> list[str]:
        """List the reasons why a task that waits would never be found."""
        line, said = self.fold.line, f"convoy {row.key}: "
        first = line.first(len(line))
        if first is None:
            return []
        found = []
        if row.from_rank > first.rank:
            found.append(f"{said}from_rank is {row.from_rank}, task {first.task_id} waits at {first.rank}")
        will_look = row.parked_at is not None or row.look_at is not None or row.state not in ("idle", "gap")
        if not will_look and (row.state is ConvoyState.IDLE or not self._is_gap_before(first.sequence, row)):
            found.append(f"{said}it is {row.state} and nobody looks again, but task {first.task_id} waits")
        return found

    def _is_gap_before(self, sequence: int | None, row: ConvoyRow) -> bool:
        line = self.fold.line
        return sequence is not None and line.find_missing(row.expected, sequence, len(line)) is not None
