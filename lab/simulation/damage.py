"""A fault: one column of one row holds what no release here can read, until the end. Everything else must end all the same."""

import asyncio
from collections.abc import Iterator
from random import Random
from typing import TYPE_CHECKING, Any

import msgspec

from arriero.audit.check import Violation
from arriero.model import STEP_BITS, TASK_OPEN, SignalRow, StepRow, StepState, TaskRow, Turn
from arriero.model.progress import PublishedRow
from arriero.store.quarantine import UNREADABLE

if TYPE_CHECKING:
    from .world import World

SHARE = 0.3  # of the seeds
UNKNOWN: dict[type, dict[str, str]] = {
    TaskRow: {"state": "archived", "policy": '{"x":1}'},
    StepRow: {"state": "dreaming", "policy": '{"supervision":{"attempts":"adaptive"}}', "undo": "{}"},
    SignalRow: {"value": '{"by":'},
    PublishedRow: {"value": "{"},
}
OF_WHAT_IS_SENT = 0.4  # of those seeds: a signal or a published value, if there is one in the first half of the time
AnyRow = TaskRow | StepRow | SignalRow | PublishedRow


class Damage:
    """See the module. At most one row of a run is damaged; ``task_no`` is its task's number, 0 before."""

    def __init__(self, world: "World", random: Random, row_random: Random) -> None:
        self._world = world
        self._random = random
        self._row_random = row_random  # a separate source: worlds in which another row is damaged stay as they were
        self._row: AnyRow | None = None
        self._before: dict[str, Any] = {}
        self._is_mended = False
        self.task_no = 0

    async def strike(self, until: float) -> None:
        """Wait for an open task at any time, and damage a row of it."""
        loop, store, random = self._world.loop, self._world.store, self._random
        wants_sent = self._row_random.random() < OF_WHAT_IS_SENT
        await asyncio.sleep(random.uniform(1, until - 5))
        while loop.time() < until:
            sent = self._list_sent() if wants_sent else []
            if wants_sent and not sent and loop.time() < until / 2:
                await asyncio.sleep(self._row_random.uniform(0.2, 2))
                continue
            if sent and self._world.faults.strikes("damage", random):
                row = self._row_random.choice(sent)
                self.task_no = row.task_no
                self._write(row)
                return
            tasks = sorted(number for number, task in store.tasks.items() if task.state in TASK_OPEN)
            if tasks and self._world.faults.strikes("damage", random):
                self.task_no = random.choice(tasks)
                steps = list(store.steps[self.task_no].values())
                task = store.tasks[self.task_no]
                self._write(random.choice(steps) if steps and random.random() < 0.5 else task)
                return
            await asyncio.sleep(random.uniform(0.2, 2))

    def _list_sent(self) -> list[SignalRow | PublishedRow]:
        """List the signals and published values of open tasks."""
        store = self._world.store
        open_tasks = sorted(number for number, task in store.tasks.items() if task.state in TASK_OPEN)
        sent: list[SignalRow | PublishedRow] = []
        for number in open_tasks:
            sent += [row for _, row in sorted(store.signal_rows.get(number, {}).items())]
            sent += [row for _, row in sorted(store.published_rows.get(number, {}).items())]
        return sent

    def _write(self, row: AnyRow) -> None:
        columns = sorted(UNKNOWN[type(row)].items())
        column, value = self._random.choice(columns)
        if isinstance(row, StepRow) and row.state is StepState.RUNNING and column == "state":
            # Its slot of a limit would count as free: nobody can know that an attempt runs.
            column, value = columns[0]
        self._before = {column: getattr(row, column)}
        self._row = row
        self._put(**{column: value})

    def _put(self, **columns: Any) -> None:
        store, row = self._world.store, self._row
        if isinstance(row, StepRow):
            rows = store.steps[self.task_no]
            if row.step_no in rows:
                rows[row.step_no] = msgspec.structs.replace(rows[row.step_no], **columns)
        elif isinstance(row, SignalRow | PublishedRow):
            of_task: Any = (store.signal_rows if isinstance(row, SignalRow) else store.published_rows).get(
                self.task_no, {}
            )
            key = row.number if isinstance(row, SignalRow) else row.ordinal
            if key in of_task:
                of_task[key] = msgspec.structs.replace(of_task[key], **columns)
        elif self.task_no in store.tasks:
            store.tasks[self.task_no] = msgspec.structs.replace(store.tasks[self.task_no], **columns)

    def keeps_waiting(self, task: TaskRow) -> bool:
        """Whether a task need not end before the row is mended: its own, and those that stand in line with it."""
        damaged = self._world.store.tasks.get(self.task_no)
        if damaged is None:
            return False
        if self._is_wanted(damaged) and not self._told():
            return (
                False  # the one who holds it continues by what it knows; in the end it ends, or a caller meets the row
            )
        in_line = task.convoy_no is not None and task.convoy_no == damaged.convoy_no
        return in_line or task.task_no == self.task_no or self._awaits(task, damaged)

    def _awaits(self, task: TaskRow, damaged: TaskRow) -> bool:
        """Whether the damaged task, or one that waits in line with it, is a child of the task, or of one of its children."""
        tasks = self._world.store.tasks
        behind = [one for one in tasks.values() if one.convoy_no is not None and one.convoy_no == damaged.convoy_no]
        awaited = [damaged, *behind]
        while awaited:
            if any(one.task_no == task.task_no for one in awaited):
                return True
            parents = (one.parent_step >> STEP_BITS for one in awaited if one.parent_step is not None)
            awaited = [tasks[number] for number in parents if number in tasks]
        return False

    def check_told(self) -> Iterator[Violation]:
        """Before it is mended: whether an operator is notified of it, once."""
        told = self._told()
        task = self._world.store.tasks.get(self.task_no)
        if told not in ([], [self.task_no]):
            yield Violation("I26", str(self.task_no), f"a row of it cannot be read; told is of {told}")
        if task is not None and not told and self._is_wanted(task):
            yield Violation("I26", task.task_id, f"{self._row} cannot be read, and nobody is told")

    def _told(self) -> list[int]:
        return [alert.task_no for alert in self._world.store.alert_rows.values() if alert.cause == UNREADABLE]

    def _is_wanted(self, task: TaskRow) -> bool:
        """Whether a caller would continue with it now, and so meets what cannot be read."""
        if isinstance(self._row, SignalRow | PublishedRow):
            return False  # who holds the task knows the signal, or waits for another one; a published value decides nothing
        if isinstance(self._row, StepRow) and "state" in self._before and self._is_put_down(task):
            return False  # its request is not found among those that wait, and nobody drives the task
        if not task.open_count and self._is_put_down(task):
            return False  # it waits for signals alone
        return task.ended_at is None and task.paused_at is None and task.turn is not Turn.WAITING

    @staticmethod
    def _is_put_down(task: TaskRow) -> bool:
        return task.locked_by is None and task.not_before is None

    def hides_a_signal(self, task_no: int) -> bool:
        """Returns True of a task, which may be about to be purged, while what was sent to it cannot be compared with what it got."""
        return task_no == self.task_no and isinstance(self._row, SignalRow) and not self._is_mended

    def mend(self) -> None:
        """Put back what stood there: nobody has written the row meanwhile, unless its task ended without it.

        A published value may have been replaced by a later one, which stays.
        """
        self._is_mended = True
        if isinstance(self._row, PublishedRow):
            now = self._world.store.published_rows.get(self.task_no, {}).get(self._row.ordinal)
            if now is None or now.value != UNKNOWN[PublishedRow]["value"]:
                return
        self._put(**self._before)

    async def check_closed(self) -> list[Violation]:
        """After it was mended: whether nobody is notified of it any longer."""
        store = self._world.store
        await store.look_at_unreadable()
        left = [alert for alert in await store.alerts(limit=1_000) if alert.cause == UNREADABLE]
        return [Violation("I26", alert.task_id, "it can be read, and its alert is open") for alert in left]
