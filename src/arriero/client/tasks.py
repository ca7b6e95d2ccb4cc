"""The tasks that a filter names: count, list, and one verb for each."""

from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any

import msgspec

from ..errors import InvalidInput
from ..model import Instant, Loaded, TaskState, Verb, later
from ..model.instants import as_instant
from ..policies import Duration, check_seconds
from ..store.task_filter import TaskFilter
from . import verb_commands
from .session import Session
from .task_verbs import Acted, FieldsBuilder, Progress, list_rows, operate_tasks
from .task_view import TaskView

NEWEST_MAX = 10_000

Since = float | datetime  # seconds ago by the store's clock, or an instant


def check_since(since: Duration | datetime) -> Since:
    """Check ``since``. Raises InvalidInput - no duration, or a datetime without a time zone."""
    if not isinstance(since, datetime):
        return check_seconds(since, "since")
    if since.tzinfo is None:
        raise InvalidInput(f"since is {since.isoformat()}; give it a time zone, like tzinfo=UTC")
    return since


def compute_since(since: Since | None, now: Instant) -> Instant | None:
    """Compute the instant of ``since``, by the store's clock; None if none is given."""
    if since is None:
        return None
    return as_instant(since) if isinstance(since, datetime) else later(now, -since)


class TaskCriteria(msgspec.Struct, frozen=True):
    """Checked criteria that select tasks.

    Args:
        older_than: seconds since their submission at least.
        since: when they were submitted at the earliest.
    """

    which: TaskFilter
    older_than: float | None = None
    since: Since | None = None

    def build_filter(self, now: Instant) -> TaskFilter:
        """Build the filter for the store, by its clock."""
        which = self.which
        if self.older_than is not None:
            which = msgspec.structs.replace(which, submitted_before=later(now, -self.older_than))
        if self.since is not None:
            which = msgspec.structs.replace(which, submitted_since=compute_since(self.since, now))
        return which


def check_criteria(
    *,
    state: str | None = None,
    older_than: Duration | None = None,
    since: Duration | datetime | None = None,
    paused: bool | None = None,
    **names: Any,
) -> TaskCriteria:
    """Check what ``app.tasks`` was asked for. Raises InvalidInput, as that does."""
    for name, value in names.items():
        if value is not None and not value.strip():
            raise InvalidInput(f"{name} is empty; leave it out, or say which tasks are meant")
    if state is not None and state not in tuple(TaskState):
        raise InvalidInput(f"state {state!r} is not known; states are {', '.join(TaskState)}")
    which = TaskFilter(state=None if state is None else TaskState(state), paused=paused, **names)
    age = None if older_than is None else check_seconds(older_than, "older_than")
    return TaskCriteria(which, age, None if since is None else check_since(since))


class Tasks:
    """Tasks that a filter names, in the order of submission; asked of the store each time."""

    def __init__(self, session: Session, criteria: TaskCriteria) -> None:
        self._session = session
        self._criteria = criteria

    async def count(self) -> int:
        """Count the tasks."""
        return sum([1 async for _ in list_rows(self._session.store, self._filter())])

    async def __aiter__(self) -> AsyncIterator[TaskView]:
        async for row in list_rows(self._session.store, self._filter()):
            loaded = await self._session.store.load(row.task_no)
            if loaded is not None:
                yield await self._session.views.view(loaded)

    async def newest(self, limit: int = 50) -> list[TaskView]:
        """The tasks submitted last, the newest first.

        Args:
            limit: so many at most, 1 to 10,000. It bounds only this look: a verb acts on all that the filter names.
        Raises: InvalidInput - another limit.
        """
        if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= NEWEST_MAX:
            raise InvalidInput(f"limit is {limit!r}; it must be a whole number from 1 to {NEWEST_MAX:,}")
        store = self._session.store
        rows = await store.list_tasks(self._filter(), newest_first=True, limit=limit)
        found = [await store.load(row.task_no) for row in rows]
        return [await self._session.views.view(loaded) for loaded in found if loaded is not None]

    def _filter(self) -> TaskFilter:
        return self._criteria.build_filter(self._session.store.now())

    # --- one verb for each that allows it; the others are counted in Acted.left_out
    async def resubmit(self, *, by: str, reason: str, dry_run: bool = False, progress: Progress | None = None) -> Acted:
        """Resubmit each; see Task.resubmit. Raises InvalidInput for a filter that names everything."""
        return await self._each(Verb.RESUBMIT, by, reason, dry_run, progress)

    async def compensate(
        self, *, by: str, reason: str, dry_run: bool = False, progress: Progress | None = None
    ) -> Acted:
        """Compensate each; see Task.compensate."""
        return await self._each(Verb.COMPENSATE, by, reason, dry_run, progress)

    async def cancel(self, *, by: str, reason: str, dry_run: bool = False, progress: Progress | None = None) -> Acted:
        """Cancel each; see Task.cancel."""
        return await self._each(Verb.CANCEL, by, reason, dry_run, progress)

    async def extend(
        self, *, by: str, reason: str, within: Duration, dry_run: bool = False, progress: Progress | None = None
    ) -> Acted:
        """Extend each; see Task.extend."""
        limit = verb_commands.check_limit(within)
        return await self._each(Verb.EXTEND, by, reason, dry_run, progress, lambda _: {"within": limit})

    async def answer(
        self,
        *,
        by: str,
        reason: str,
        step: str,
        result: Any = msgspec.UNSET,
        did_not_happen: bool = False,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> Acted:
        """Answer the same step of each; see Task.answer."""

        def build_fields(loaded: Loaded) -> dict[str, Any]:
            return verb_commands.build_answer(loaded, self._session.codes, step, result, did_not_happen)

        return await self._each(Verb.ANSWER, by, reason, dry_run, progress, build_fields)

    async def pause(self, *, by: str, reason: str, dry_run: bool = False, progress: Progress | None = None) -> Acted:
        """Pause each; see Task.pause."""
        return await self._each(Verb.PAUSE, by, reason, dry_run, progress)

    async def resume(self, *, by: str, reason: str, dry_run: bool = False, progress: Progress | None = None) -> Acted:
        """Resume each; see Task.resume."""
        return await self._each(Verb.RESUME, by, reason, dry_run, progress)

    async def _each(
        self,
        verb: Verb,
        by: str,
        reason: str,
        dry_run: bool,
        progress: Progress | None,
        build_fields: FieldsBuilder | None = None,
    ) -> Acted:
        return await operate_tasks(
            self._session,
            verb,
            self._filter(),
            by,
            reason,
            dry_run=dry_run,
            progress=progress,
            build_fields=build_fields,
        )
