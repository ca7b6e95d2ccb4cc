"""The tasks that a filter names: count, list, and one verb for each."""

from collections.abc import AsyncIterator, Collection, Mapping
from datetime import datetime
from typing import Annotated, Any, Unpack

import msgspec

from ..errors import InvalidInput
from ..model import STEP_PREFIX, Instant, Loaded, TaskState, Verb, later
from ..model.instants import as_instant
from ..model.policies import Duration, check_seconds
from ..model.processes import read_version_change
from ..model.tags import check_tag_change, check_tags, encode_changes
from ..model.verb_rules import PinArguments
from ..payloads import codec
from ..store.task_filter import TaskCriteria, TaskFilter
from . import task_verbs
from .session import Session
from .task_verbs import (
    Acted,
    Adjustment,
    FieldsBuilder,
    Progress,
    build_adjustment,
    list_rows,
    operate_tasks,
    read_adjustment,
)
from .task_view import TaskView

NEWEST_MAX = 10_000


class TaskSelector(TaskCriteria, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The tasks that a caller selects; what is left out: any. Durations are in seconds, instants have a time zone."""

    older_than: Annotated[
        float | datetime | None,
        msgspec.Meta(description="Only tasks submitted at least this long ago, or before this instant."),
    ] = None
    since: Annotated[
        float | datetime | None,
        msgspec.Meta(description="Only tasks submitted at most this long ago, or since this instant."),
    ] = None

    def check(self, prefix: str = "") -> "TaskSelector":
        """Return the selector. ``prefix``: of the names in errors.

        Raises: InvalidInput - an unknown state, an empty text, no duration, or a datetime without a time zone.
        """
        for name in ("workflow", "agent", "step", "ledger", "parent", "code", "text"):
            value = getattr(self, name)
            if value is None:
                continue
            if not isinstance(value, str):
                raise InvalidInput(f"{prefix}{name} is {value!r}; it must be a text")
            if name not in ("code", "text"):
                codec.check_id(value.removeprefix(STEP_PREFIX), f"{prefix}{name}")
            if not value.strip():
                raise InvalidInput(f"{prefix}{name} is empty; leave it out, or say which tasks are meant")
        if self.tags is not None and not check_tags(self.tags, f"{prefix}tags"):
            raise InvalidInput(f"{prefix}tags is empty; leave it out, or name a tag")
        if self.code_version is not None:
            read_version_change(self.code_version, f"{prefix}code_version")
        if self.state is not None and self.state not in tuple(TaskState):
            raise InvalidInput(f"{prefix}state {self.state!r} is not known; states are {', '.join(TaskState)}")
        for name, when in (("older_than", self.older_than), ("since", self.since)):
            if isinstance(when, datetime):
                if when.tzinfo is None:
                    raise InvalidInput(f"{prefix}{name} is {when.isoformat()}; give it a time zone, like tzinfo=UTC")
            elif when is not None:
                check_seconds(when, f"{prefix}{name}")
        return self

    def build_filter(self, now: Instant) -> TaskFilter:
        """Build the filter for a store, by its clock. Raises InvalidInput, as ``check``."""
        self.check()
        shared = {name: getattr(self, name) for name in TaskCriteria.__struct_fields__}
        snoozed_at = None if self.snoozed is None else now
        before, since = _find_instant(self.older_than, now), _find_instant(self.since, now)
        return TaskFilter(**shared, submitted_before=before, submitted_since=since, snoozed_at=snoozed_at)


def check_when(when: Duration | datetime | None, name: str) -> float | datetime | None:
    """Check a duration, or leave an instant as it is. ``name``: of it, in errors. Raises InvalidInput."""
    return when if when is None or isinstance(when, datetime) else check_seconds(when, name)


def _find_instant(when: float | datetime | None, now: Instant) -> Instant | None:
    """Find the instant of a duration ago, or of a datetime."""
    if when is None:
        return None
    return as_instant(when) if isinstance(when, datetime) else later(now, -when)


class Tasks:
    """Tasks that a filter names, in the order of submission; asked of the store each time."""

    def __init__(self, session: Session, which: TaskSelector) -> None:
        self._session = session
        self._which = which

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
            limit: that many at most, 1 to 10,000. It bounds only this look: a verb acts on all that the filter names.
        Raises: InvalidInput - another limit.
        """
        if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= NEWEST_MAX:
            raise InvalidInput(f"limit is {limit!r}; it must be a whole number from 1 to {NEWEST_MAX:,}")
        store = self._session.store
        rows = await store.list_tasks(self._filter(), newest_first=True, limit=limit)
        found = [await store.load(row.task_no) for row in rows]
        return [await self._session.views.view(loaded) for loaded in found if loaded is not None]

    def _filter(self) -> TaskFilter:
        return self._which.build_filter(self._session.store.now())

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
        limit = check_seconds(within, "within", at_least=0.001)
        return await self._each(Verb.EXTEND, by, reason, dry_run, progress, lambda _: {"within": limit})

    async def adjust(
        self,
        *,
        by: str,
        reason: str,
        dry_run: bool = False,
        progress: Progress | None = None,
        **limits: Unpack[Adjustment],
    ) -> Acted:
        """Change the limits of each, or of the steps of each; see Task.adjust."""
        arguments = read_adjustment(limits)
        return await self._each(
            Verb.ADJUST, by, reason, dry_run, progress, lambda loaded: build_adjustment(loaded, arguments)
        )

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
            return task_verbs.build_answer(loaded, self._session.codes, step, result, did_not_happen)

        return await self._each(Verb.ANSWER, by, reason, dry_run, progress, build_fields)

    async def pause(self, *, by: str, reason: str, dry_run: bool = False, progress: Progress | None = None) -> Acted:
        """Pause each; see Task.pause."""
        return await self._each(Verb.PAUSE, by, reason, dry_run, progress)

    async def resume(self, *, by: str, reason: str, dry_run: bool = False, progress: Progress | None = None) -> Acted:
        """Resume each; see Task.resume."""
        return await self._each(Verb.RESUME, by, reason, dry_run, progress)

    async def snooze(
        self, *, by: str, reason: str, delay: Duration, dry_run: bool = False, progress: Progress | None = None
    ) -> Acted:
        """Snooze each; see Task.snooze."""
        seconds = check_seconds(delay, "delay", at_least=0.001)
        return await self._each(Verb.SNOOZE, by, reason, dry_run, progress, lambda _: {"within": seconds})

    async def change_tags(
        self,
        put: Mapping[str, str] | None = None,
        remove: Collection[str] = (),
        *,
        by: str,
        reason: str,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> Acted:
        """Change the tags of each; see Task.change_tags."""
        check_tag_change({} if put is None else put, remove)
        changes = encode_changes(put or {}, tuple(remove))
        return await self._each(Verb.TAG, by, reason, dry_run, progress, lambda _: {"tags": changes})

    async def pin(
        self, to: str, *, by: str, reason: str, dry_run: bool = False, progress: Progress | None = None
    ) -> Acted:
        """Let another version of their code continue each; see Task.pin."""
        PinArguments(to=to).check()
        return await self._each(Verb.PIN, by, reason, dry_run, progress, lambda _: {"to": to})

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
