"""All tasks that a filter names: counting them, looking at them, and one verb for each."""

from collections import Counter
from collections.abc import AsyncIterator, Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from . import operating
from .attempt import as_instant
from .commands import Operate, Refusal
from .core.verb_rules import why_left_out
from .core.verbs import judged
from .errors import InvalidInput
from .model import Instant, Loaded, TaskRow, TaskState, Verb, later
from .policies import Duration
from .store.base import ANY_TASK, TaskFilter
from .task import seconds_or_refuse
from .task_view import TaskView

if TYPE_CHECKING:
    from .app import App

NEWEST_MAX = 10_000
PAGE = 200  # tasks read, and verbs written, at a time

Progress = Callable[[int], None]
Since = float | datetime  # seconds ago by the store's clock, or an instant


def since_or_refuse(since: Duration | datetime) -> Since:
    """Since when tasks are meant. Raises InvalidInput - no duration, or a datetime without a time zone."""
    if not isinstance(since, datetime):
        return seconds_or_refuse(since, "since")
    if since.tzinfo is None:
        raise InvalidInput(f"since is {since.isoformat()}; give it a time zone, like tzinfo=UTC")
    return since


def submitted_since(since: Since | None, now: Instant) -> Instant | None:
    """The instant of ``since``, by the store's clock; None: none is given."""
    if since is None:
        return None
    return as_instant(since) if isinstance(since, datetime) else later(now, -since)


class Acted(msgspec.Struct, frozen=True):
    """What one verb did to many tasks.

    Args:
        meant: how many tasks of the filter the verb was asked of: those done and those refused.
        done: ids of those it was carried out on; with a dry run, of those that allow it.
        refused: ids of those whose state allows it but that refuse it, each with the reason, like a pivot.
        left_out: how many tasks of the filter were left alone, by what they are: ``(("processed", 98),)``. Their state
            does not allow the verb: most of them have ended.
    """

    meant: int
    done: tuple[str, ...]
    refused: tuple[tuple[str, str], ...]
    left_out: tuple[tuple[str, int], ...] = ()

    @property
    def left_out_count(self) -> int:
        """How many tasks of the filter were left alone."""
        return sum(count for _, count in self.left_out)


class Tasks:
    """Tasks that a filter names, in the order of submission; asked of the store each time.

    Args:
        older_than: seconds since their submission at least.
        since: when they were submitted at the earliest.
    """

    def __init__(
        self, app: "App", which: TaskFilter, older_than: float | None = None, since: Since | None = None
    ) -> None:
        self._app = app
        self._which = which
        self._older_than = older_than
        self._since = since

    async def count(self) -> int:
        """How many there are now."""
        return sum([1 async for _ in self._rows()])

    async def __aiter__(self) -> AsyncIterator[TaskView]:
        async for loaded in self._loaded():
            yield await self._app._views_open().view(loaded)

    async def newest(self, limit: int = 50) -> list[TaskView]:
        """Those submitted last, the newest first.

        Args:
            limit: so many at most, 1 to 10,000. It bounds only this look: a verb acts on all that the filter names.
        Raises: InvalidInput - another limit.
        """
        if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= NEWEST_MAX:
            raise InvalidInput(f"limit is {limit!r}; it must be a whole number from 1 to {NEWEST_MAX:,}")
        store = self._app._store_open()
        rows = await store.list_tasks(self._filter(store.now()), newest_first=True, limit=limit)
        found = [await store.load(row.task_no) for row in rows]
        return [await self._app._views_open().view(loaded) for loaded in found if loaded is not None]

    def _filter(self, now: Instant) -> TaskFilter:
        """What the store is asked for, by its clock."""
        which = self._which
        if self._older_than is not None:
            which = msgspec.structs.replace(which, submitted_before=later(now, -self._older_than))
        if self._since is not None:
            which = msgspec.structs.replace(which, submitted_since=submitted_since(self._since, now))
        return which

    async def _rows(self) -> AsyncIterator[TaskRow]:
        store, after = self._app._store_open(), 0
        which = self._filter(store.now())
        while page := await store.list_tasks(which, after=after, limit=PAGE):
            for row in page:
                yield row
            after = page[-1].task_no

    async def _loaded(self) -> AsyncIterator[Loaded]:
        async for row in self._rows():
            loaded = await self._app._store_open().load(row.task_no)
            if loaded is not None:
                yield loaded

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
        limit = operating.limit_seconds(within)
        return await self._each(Verb.EXTEND, by, reason, dry_run, progress, within=limit)

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

        def what(loaded: Loaded) -> dict[str, Any]:
            return operating.answered(loaded, self._app._codes, step, result, did_not_happen)

        return await self._each(Verb.ANSWER, by, reason, dry_run, progress, what)

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
        what: Callable[[Loaded], dict[str, Any]] | None = None,
        **same: Any,
    ) -> Acted:
        if self._which == ANY_TASK and self._older_than is None and self._since is None:
            raise InvalidInput(
                f"{verb} of all tasks there are: name at least one thing they have in common, like state="
            )
        operating.signed(by, reason)
        store_id = self._app._store_open().store_id
        done: list[str] = []
        refused: list[tuple[str, str]] = []
        left_out: Counter[str] = Counter()
        waiting: list[tuple[Operate, Loaded]] = []

        async def carry_out() -> None:
            for (_, loaded), refusal in zip(waiting, await self._refusals(waiting, dry_run), strict=True):
                if refusal is None:
                    done.append(loaded.task.task_id)
                else:
                    refused.append((loaded.task.task_id, refusal.detail))
            waiting.clear()
            if progress is not None:
                progress(len(done) + len(refused))

        async for row in self._rows():
            if isinstance(row.state, TaskState) and (why := why_left_out(verb, row)):
                left_out[why] += 1
                continue
            loaded = await self._app._store_open().load(row.task_no)
            if loaded is None:
                continue
            try:
                operating.readable(loaded)
                more = same if what is None else what(loaded)
            except InvalidInput as error:
                refused.append((loaded.task.task_id, str(error)))
                continue
            waiting.append((operating.command(verb, loaded, store_id, by=by, reason=reason, **more), loaded))
            if len(waiting) == PAGE:
                await carry_out()
        await carry_out()
        return Acted(len(done) + len(refused), tuple(done), tuple(refused), tuple(left_out.most_common()))

    async def _refusals(self, asked: list[tuple[Operate, Loaded]], dry_run: bool) -> list[Refusal | None]:
        if dry_run:
            now = self._app._store_open().now()
            return [judged(command, loaded, now) for command, loaded in asked]
        answers = await self._app._operate([command for command, _ in asked])
        return [answer if isinstance(answer, Refusal) else None for answer in answers]
