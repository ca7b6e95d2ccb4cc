"""Published values: no row goes back to an older value, and what was published last before the end is there at the end."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from arriero.audit.check import Violation
from arriero.declare.attempt import Attempt
from arriero.model import Instant, StepState, TaskState
from arriero.model.progress import PublishedRow
from arriero.store.memory import MemoryStore

LAST_STAGE = 3  # that the code of ``in_a_row`` publishes


class PublishingStore(MemoryStore):
    """Judges each published value as it is written. Values are whole numbers: a later one is larger."""

    def __init__(self, now: Callable[[], Instant], *, store_id: str) -> None:
        super().__init__(now, store_id=store_id)
        self.went_back: list[str] = []
        self._incarnations: dict[int, int] = {}  # of the tasks whose code has published: the next one publishes again

    def put_published(self, row: PublishedRow) -> None:
        before = self.published_rows.get(row.task_no, {}).get(row.ordinal)
        incarnation = self.tasks[row.task_no].incarnation
        is_same = row.ordinal != 0 or self._incarnations.get(row.task_no) == incarnation
        if row.ordinal == 0:
            self._incarnations[row.task_no] = incarnation
        last = "" if before is None or before.value is None else before.value
        if is_same and row.value and last.isdigit() and int(row.value) < int(last):  # else the fault has damaged it
            self.went_back.append(f"task {row.task_no}, step {row.ordinal}: {row.value} came after {last}")
        super().put_published(row)


class Publisher:
    """Publishes for attempts, and remembers the last value of each."""

    def __init__(self) -> None:
        self._count = 0
        self._last: dict[int, tuple[Attempt, int]] = {}  # by the attempt's identity, which stays while it is kept here

    def publish(self, attempt: Attempt) -> None:
        """Publish the next number."""
        self._count += 1
        self._last[id(attempt)] = (attempt, self._count)
        attempt.publish(self._count)

    def find_last(self, attempt: Attempt) -> int | None:
        """The last number that an attempt has published; None: it has published none."""
        found = self._last.get(id(attempt))
        return None if found is None else found[1]


def judge_published(
    store: PublishingStore, publisher: Publisher, attempts: Mapping[tuple[int, int], Any]
) -> Iterator[Violation]:
    """Judge a world at its end. ``attempts``: who carried a step out, by its number and fence."""
    for text in store.went_back:
        yield Violation("published", "", text)
    for task in store.tasks.values():
        rows = store.published_rows.get(task.task_no, {})
        shown = {ordinal: row.value for ordinal, row in rows.items()}
        if task.workflow == "in_a_row" and task.state is TaskState.PROCESSED and shown.get(0) != str(LAST_STAGE):
            yield Violation(
                "published", task.task_id, f"its code published {LAST_STAGE} last, and {shown.get(0)} is shown"
            )
        for step in store.steps[task.task_no].values():
            attempt = attempts.get((step.step_no, step.fence))
            last = None if attempt is None else publisher.find_last(attempt)
            if last is not None and step.state is StepState.COMPLETED and shown.get(step.ordinal) != str(last):
                text = f"step {step.label} published {last} last, and {shown.get(step.ordinal)} is shown"
                yield Violation("published", task.task_id, text)
