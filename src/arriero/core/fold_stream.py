"""The events of a convoy in their order, and what they say against the convoy's row.

They stand in the streams of its tasks and in one of its own, and carry numbers: rows of one commit stand in the order of
their tasks, and rows of commits that do not depend on each other may stand between them. So they are folded by number.
"""

from collections.abc import Callable

from ..model import ConvoyRow, ConvoyState
from .fold import UNREADABLE, Event, TaskFold
from .fold_key import ConvoyFold, Told, plain
from .fold_turns import OF_TASKS, OF_THE_KEY, placed


class ConvoyStream:
    """Brings the events of one convoy into their order and folds them. ``fold``: as far as they follow each other."""

    def __init__(self, convoy_no: int) -> None:
        self.fold = ConvoyFold(convoy_no)
        self.is_torn = False  # events in the middle are gone, with tasks that were removed
        self._ahead: dict[int, Told] = {}  # found, but not what comes before it

    def row_of_task(self, task: TaskFold, at: int, events: list[Event]) -> None:
        """A commit of one of its tasks, which the task has folded before."""
        for event in events:
            if event.get("convoy") != self.fold.convoy_no:
                continue
            if event.get("type") == "convoy.placed":
                self._read(placed, task, event)
            else:
                self._found(at, task.task_no, event)

    def own_row(self, key: str, at: int, events: list[Event]) -> None:
        """A commit of its own stream."""
        self.fold.key = self.fold.key or key
        for event in events:
            if event.get("type") not in OF_THE_KEY:
                self.fold.convict("I53", f"unknown event {event.get('type')!r}")
            self._found(at, 0, event)

    def end(self, *, purged: bool) -> None:
        """Nothing more comes. ``purged``: tasks were removed, and their events with them."""
        fold = self.fold
        if self._ahead and not purged:
            fold.convict("I53", f"event {min(self._ahead)} follows event {fold.number}: some are missing")
        elif self._ahead:
            self.is_torn = True
            for number in sorted(self._ahead):
                self._fold(number)
        fold.judge_promise(None)
        holes = fold.line.holes()
        if holes and not purged:
            fold.convict("I40", f"nothing was placed at {holes[0]}, but something behind it")
        fold.violations += [] if purged else fold.doubtful
        fold.doubtful, self._ahead = [], {}

    def _found(self, at: int, task_no: int, event: Event) -> None:
        number = event.get("number")
        if not isinstance(number, int):
            self.fold.convict("I53", f"{event.get('type')} has no number")
        elif number <= self.fold.number or number in self._ahead:
            self.fold.convict("I53", f"event {number} is there twice")
        else:
            self._ahead[number] = Told(at, task_no, len(self.fold.line), event)
            while self.fold.number + 1 in self._ahead:
                self._fold(self.fold.number + 1)

    def _fold(self, number: int) -> None:
        told = self._ahead.pop(number)
        self.fold.judge_promise(told.at)
        self.fold.number = number
        kind = told.event.get("type")
        if told.task_no == 0:
            if kind in OF_THE_KEY:
                self._read(OF_THE_KEY[kind], told)
            return
        member = self.fold.line.members.get(told.task_no)
        if member is not None and kind in OF_TASKS:  # else the fold of the task has convicted it
            self._read(OF_TASKS[kind], member, told)

    def _read(self, handler: Callable[..., None], *what: object) -> None:
        try:
            handler(self.fold, *what)
        except UNREADABLE as error:
            self.fold.convict("I53", f"an event cannot be read: {type(error).__name__} {error}")

    # --- against the row
    def differences(self, row: ConvoyRow, *, purged: bool) -> list[str]:
        """Where the row says something else (I52), or would let the key stand still for ever. After ``end``."""
        found = self._standing_still(row)
        if self.is_torn or (purged and row.number > self.fold.number):
            return found  # the events of removed tasks are gone
        return found + self._differing(row)

    def _differing(self, row: ConvoyRow) -> list[str]:
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
            found.append(f"alerted_task is {row.alerted_task}, its history tells of alerts for {sorted(told)}")
        return [f"convoy {row.key}: {text}" for text in found]

    def _standing_still(self, row: ConvoyRow) -> list[str]:
        """Reasons why something that waits would never be found."""
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
        return sequence is not None and line.missing(row.expected, sequence, len(line)) is not None
