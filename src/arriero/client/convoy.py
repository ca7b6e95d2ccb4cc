"""The handle of one convoy: its state, and the verbs of an operator."""

from collections.abc import AsyncIterator
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec.structs import replace

from ..errors import InvalidInput, UnknownName, VerbRefused
from ..explain.convoys import describe_convoy_wait, effective_policy, gap_deadline, standing_since
from ..model import ConvoyRow, ConvoyState, ConvoyVerb, Instant, Ordering, TaskRow
from ..model.answers import ConvoyApplied, Refusal
from ..model.commands import OperateConvoy
from ..model.failures import read_task_failure
from ..model.policies import ConvoyOverrides, ConvoyPolicy, Duration, check_seconds
from ..payloads import codec
from ..store.contract import ConvoyLoaded
from ..store.readable import faults_of, legible
from . import task_verbs
from .row_shapes import to_datetime
from .session import Session, load_task
from .task_view import describe_release_wait

if TYPE_CHECKING:  # only who opens a store pays for its operations
    from ..store.state_store import StateStore

SHOWN = (*map(str, ConvoyState), "parked")
NAMED = 10  # tasks of each kind, and ranges of numbers, that a view names
NAMED_MAX = 1_000
PAGE = 200
WORDS = ("wait", "skip", "park")
Word = Literal["wait", "skip", "park"]


class ConvoyView(msgspec.Struct, frozen=True):
    """A convoy as operators see it.

    Args:
        no: its number in the store.
        state: ``idle``, ``open``, ``stopped`` (on a held task), ``gap`` (a number has not come) or ``parked``.
        waiting_for: what moves it next, as it continues after "it waits for ".
        ordering: ``place`` (of submission), or the producer's ``sequence``.
        waiting, set_aside: how many tasks wait for their turn, and were passed over and are still held.
        open_task: id of the task whose turn it is.
        next_tasks: ids of the first ones that wait, in their order.
        set_aside_tasks: the first ones that were passed over, each with the reason it is held.
        missing: the first ranges (first, last) of sequence numbers that have not come, up to the last one known.
        since: when it stopped, or when the task whose turn it is started.
        policy: in force for the task whose turn it is or comes next; None: no task is there.
        own_policy: the parts of it that are set here, by name; the others are those of the task's workflow.
        gap_until: until when a gap is waited for before its policy is followed.
        value: the state of the key, as JSON values, as the workflows of its tasks keep it.
        workflow: of the task whose turn it is or comes next; None: no task is there.
    """

    no: int
    key: str
    state: str
    waiting_for: str
    ordering: Ordering
    waiting: int
    set_aside: int
    open_task: str | None
    next_tasks: tuple[str, ...]
    set_aside_tasks: tuple[tuple[str, str], ...]
    missing: tuple[tuple[int, int], ...]
    since: datetime | None
    policy: ConvoyPolicy | None
    own_policy: dict[str, str | float]
    gap_until: datetime | None
    value: Any = msgspec.UNSET
    workflow: str | None = None


class ConvoyOutcome(msgspec.Struct, frozen=True):
    """A convoy as a verb left it, in the verb's own transaction. It may have continued since.

    Args:
        state: as of ConvoyView.
        open_task: id of the task whose turn it is; None: no task has it.
    """

    state: str
    open_task: str | None


def build_convoy_view(loaded: ConvoyLoaded, now: Instant) -> ConvoyView:
    """A convoy's rows as operators see them, as far as they can be read. ``now``: the store's clock."""
    faults, convoy = faults_of(loaded.convoy), legible(loaded.convoy)
    first = next(iter(loaded.members), None)
    has_turn = first is not None and first.task_no == convoy.open_task
    policy = effective_policy(convoy, first)
    return ConvoyView(
        no=convoy.convoy_no,
        key=convoy.key,
        state=convoy.shown,
        waiting_for=(
            describe_release_wait(faults)
            if faults
            else describe_convoy_wait(convoy, first, loaded.waiting, loaded.missing, now)
        ),
        ordering=convoy.ordering,
        waiting=loaded.waiting,
        set_aside=loaded.set_aside,
        open_task=first.task_id if first is not None and has_turn else None,
        next_tasks=tuple(task.task_id for task in loaded.members[has_turn:]),
        set_aside_tasks=tuple((task.task_id, _read_reason(task)) for task in loaded.passed_over),
        missing=loaded.missing,
        since=to_datetime(standing_since(convoy, first)),
        policy=None if first is None else policy,
        own_policy={name: value for name, value in _list_own_policy(convoy).items() if value is not None},
        gap_until=to_datetime(gap_deadline(convoy, policy)),
        value=None if convoy.value is None else msgspec.json.decode(convoy.value),
        workflow=None if first is None else first.workflow,
    )


def show_outcome(view: ConvoyView, outcome: ConvoyOutcome) -> ConvoyView:
    """The convoy as the verb left it: a Scheduler may have ended the task that it let go before the view was read."""
    if (view.state, view.open_task) == (outcome.state, outcome.open_task):
        return view
    waiting_for = f"task {outcome.open_task}, whose turn it is" if outcome.state == "open" else view.waiting_for
    return replace(view, state=outcome.state, open_task=outcome.open_task, waiting_for=waiting_for)


def _list_own_policy(convoy: ConvoyRow) -> dict[str, Any]:
    return {"head": convoy.on_head, "gap": convoy.on_gap, "gap_within": convoy.gap_within}


def _read_reason(task: TaskRow) -> str:
    return "" if task.failure is None else read_task_failure(task.failure).reason


def check_state(state: str | None) -> str | None:
    """A state as operators name it. Raises InvalidInput."""
    if state is not None and state not in SHOWN:
        raise InvalidInput(f"state {state!r} of a convoy is not known; states are {', '.join(SHOWN)}")
    return state


async def list_convoy_views(store: "StateStore", state: str | None, *, after: int = 0) -> AsyncIterator[ConvoyView]:
    """Convoys in the order of their numbers, after one, read page by page, each as it stands when it comes.

    ``state``: as operators see it; None: all but those that are idle.
    """
    while page := await store.list_convoys(state, after=after, limit=PAGE):
        for listed in page:
            loaded = await store.find_convoy(listed.convoy.key, NAMED)
            if loaded is not None and _is_meant(loaded, state):
                yield build_convoy_view(loaded, store.now())
        after = page[-1].convoy.convoy_no


def _is_meant(loaded: ConvoyLoaded, state: str | None) -> bool:
    shown = loaded.convoy.shown
    return shown != "idle" if state is None else shown == state


class Convoy:
    """A handle of one convoy: the tasks of one key, which are handled one after the other."""

    def __init__(self, session: Session, key: str) -> None:
        self.key = key
        self._session = session

    async def _load(self, limit: int = NAMED) -> ConvoyLoaded:
        store = self._session.store
        loaded = await store.find_convoy(self.key, limit)
        if loaded is None:
            raise UnknownName(f"no convoy {self.key!r} in the store {store.url}: no task was submitted to it")
        return loaded

    async def view(self, *, limit: int = NAMED) -> ConvoyView:
        """The convoy as it stands.

        Args:
            limit: how many tasks of each kind, and ranges of numbers, it names; 1 to 1,000.
        Raises: InvalidInput - no task was ever submitted to it; StoreError.
        """
        if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= NAMED_MAX:
            raise InvalidInput(f"limit is {limit!r}; it must be a whole number from 1 to {NAMED_MAX}")
        loaded = await self._load(limit)
        return build_convoy_view(loaded, self._session.store.now())

    # --- what an operator may do; which verb a state allows stands in core.convoy_verbs
    async def set(
        self,
        *,
        by: str,
        reason: str,
        head: Word | msgspec.UnsetType | None = msgspec.UNSET,
        gap: Word | msgspec.UnsetType | None = msgspec.UNSET,
        gap_within: Duration | msgspec.UnsetType | None = msgspec.UNSET,
    ) -> ConvoyOutcome:
        """Give the key a separate policy, also for what it waits for now.

        Args:
            by, reason: who asks, and why; kept in the history.
            head, gap, gap_within: as of ConvoyPolicy. Those not given stay as they are; None: the workflow's holds again.
        Returns: the convoy as the verb left it.
        Raises: VerbRefused - the state does not allow it, or another verb came first; InvalidInput; StoreError.
        """
        given: dict[str, Any] = {}
        for name, word in (("head", head), ("gap", gap)):
            if word is not msgspec.UNSET:
                if word is not None and word not in WORDS:
                    raise InvalidInput(f"{name} is {word!r}; it must be 'wait', 'skip' or 'park', or None")
                given[name] = word
        if not isinstance(gap_within, msgspec.UnsetType):
            given["gap_within"] = None if gap_within is None else check_seconds(gap_within, "gap_within")
        if not given:
            raise InvalidInput("set what? Give at least one of head, gap and gap_within")
        loaded = await self._load()
        policy = ConvoyOverrides(**{**_list_own_policy(loaded.convoy), **given})
        return await self._operate(ConvoyVerb.SET, loaded, by, reason, policy=policy)

    async def release(self, *, by: str, reason: str) -> ConvoyOutcome:
        """Let a parked key continue; if its head is held it still waits for that. Returns and raises: as ``set``."""
        return await self._operate(ConvoyVerb.RELEASE, await self._load(), by, reason)

    async def skip(self, *, by: str, reason: str, seen: str | int | None = None) -> ConvoyOutcome:
        """Set the held task aside, or what is missing, and continue.

        Args:
            seen: the id of the held task, or the first missing number, as the person saw it: another is not skipped.
        Returns: as ``set``.
        Raises: as ``set``; VerbRefused also when the key is blocked on something else by now.
        """
        loaded = await self._load()
        if seen is not None and str(seen) not in (what := _list_obstacles(loaded)):
            said = f"convoy {self.key!r} is blocked on {' or '.join(what) or 'nothing'}, not on {str(seen)!r}"
            raise VerbRefused(f"{said}: look at it again", verb=ConvoyVerb.SKIP, state=loaded.convoy.shown, allowed=())
        return await self._operate(ConvoyVerb.SKIP, loaded, by, reason)

    async def park(self, *, by: str, reason: str) -> ConvoyOutcome:
        """Begin nothing more until it is released; a task that is running goes to its end. Returns and raises: as ``set``."""
        return await self._operate(ConvoyVerb.PARK, await self._load(), by, reason)

    async def move_to_head(self, task_id: str, *, by: str, reason: str) -> ConvoyOutcome:
        """Let a task that waits come before all others that wait; not in a convoy ordered by sequence.

        Returns: as ``set``.
        Raises: as ``set``; UnknownTask.
        """
        task_verbs.check_signature(by, reason)
        found = await load_task(self._session, codec.check_id(task_id, "task_id"))
        return await self._operate(ConvoyVerb.MOVE_TO_HEAD, await self._load(), by, reason, task_no=found.task.task_no)

    async def _operate(
        self, verb: ConvoyVerb, loaded: ConvoyLoaded, by: str, reason: str, **what: Any
    ) -> ConvoyOutcome:
        """Send a verb. Only a skip is bound to the head or gap that the caller saw, because it names no target itself."""
        who, why = task_verbs.check_signature(by, reason)
        command = OperateConvoy(
            actor=task_verbs.ACTOR,
            verb=verb,
            convoy_no=loaded.convoy.convoy_no,
            fence=loaded.convoy.fence if verb is ConvoyVerb.SKIP else None,
            by=who,
            reason=why,
            **what,
        )
        (answer,) = await self._session.operate([command])
        if isinstance(answer, Refusal):
            raise VerbRefused(answer.detail, verb=verb, state=answer.state, allowed=answer.allowed)
        assert isinstance(answer, ConvoyApplied)
        convoy = legible(answer.convoy)
        return ConvoyOutcome(convoy.shown, await self._find_id(convoy.open_task, loaded))

    async def _find_id(self, task_no: int | None, loaded: ConvoyLoaded) -> str | None:
        """Return the id of a task by its number; None if there is none, or it is purged by now."""
        if task_no is None:
            return None
        for task in loaded.members:
            if task.task_no == task_no:
                return task.task_id
        found = await self._session.store.load(task_no)
        return None if found is None else found.task.task_id

    def __repr__(self) -> str:
        return f"<convoy {self.key}>"


def _list_obstacles(loaded: ConvoyLoaded) -> list[str]:
    """The names of what a skip would pass over: the id of the held task, or the first missing number."""
    convoy = loaded.convoy
    if convoy.state is ConvoyState.STOPPED:
        return [task.task_id for task in loaded.members if task.task_no == convoy.open_task]
    return [str(convoy.expected)] if convoy.state is ConvoyState.GAP else []
