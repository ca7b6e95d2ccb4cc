"""One authenticated request, as the functions of the routes see it: the part of the store that it reaches, and what it may not read."""

import asyncio
import functools
from collections.abc import Awaitable, Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from typing import Annotated, Any, TypeVar, cast, get_args

import msgspec
from fastapi import Depends
from starlette.requests import Request

from ..client.agents import AgentView
from ..client.client import Client
from ..client.convoy import ConvoyView
from ..client.json_signals import RequestAnswer, ShownSignal
from ..client.payload_record import ShownByHand, ShownLateAnswer, ShownVersion
from ..client.schedules import ScheduleView, read_shown_declaration
from ..client.session import Session
from ..client.task_explanation import ExplanationAnswer, ShownPublished, ShownReason, ShownResult
from ..client.task_inputs import TaskInput
from ..client.task_shapes import EndAnswer, Payloads, ShownStep, StandingTask, TaskAnswer
from ..core.deduplication import hide_task_of_sequence
from ..core.ledger_batches import LedgerBatch, LedgerWritten
from ..core.parents import ParentStep
from ..model import Loaded, StatusRow, TaskRow
from ..model.failures import StepFailure
from ..model.schedules import ScheduleRow
from ..model.tokens import ANY_REACH, OpenTaskCap, Reach
from ..store.contract import ConvoyLoaded
from ..store.state_store import StateStore
from ..store.task_filter import ANY_TASK, TaskFilter
from .caller_limits import RequestPlace
from .problems import INVALID_JSON, NOT_OPEN, Problem, build_shutdown_problem
from .scopes import may_read_payloads, may_read_reasons

ACKNOWLEDGED_MAX = 1_000  # the oldest messages, among which a reader acknowledges


class ReachedStore:
    """Asks a store on behalf of a token that is restricted: other tasks, schedules and messages are as if they were not there.

    The gate lets a restricted token pass only to operations that look at the store through this. What an operation asks beside
    the methods below is about tasks that it has found here before.
    """

    def __init__(self, store: StateStore, reach: Reach) -> None:
        self._store = store
        self._reach = reach

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def _see(self, loaded: Loaded | None) -> Loaded | None:
        if loaded is None or not self._reach.includes(loaded.task.app, loaded.task.workflow):
            return None
        return loaded

    async def find(self, task_id: str) -> Loaded | None:
        return self._see(await self._store.find(task_id))

    async def load(self, task_no: int) -> Loaded | None:
        return self._see(await self._store.load(task_no))

    async def list_tasks(self, which: TaskFilter = ANY_TASK, **options: Any) -> list[TaskRow]:
        return await self._store.list_tasks(narrow_filter(which, self._reach), **options)

    async def list_children(self, step_nos: Sequence[int]) -> dict[int, TaskRow]:
        found = await self._store.list_children(step_nos)
        return {number: task for number, task in found.items() if self._reach.includes(task.app, task.workflow)}

    async def load_parents(self, step_nos: Sequence[int]) -> dict[int, ParentStep]:
        found = await self._store.load_parents(step_nos)
        return {number: parent for number, parent in found.items() if self._reach.includes(parent.app, parent.workflow)}

    async def list_forks(self, task_no: int, limit: int) -> list[TaskRow]:
        found = await self._store.list_forks(task_no, limit)
        return [task for task in found if self._reach.includes(task.app, task.workflow)]

    async def find_convoy(self, key: str, limit: int) -> ConvoyLoaded | None:
        """A convoy may have tasks of anybody, so none is there."""
        return None

    async def list_schedules(self, app: str | None = None) -> list[ScheduleRow]:
        rows = await self._store.list_schedules(app)
        return [row for row in rows if self._reach.includes(row.app, read_shown_declaration(row).workflow)]

    async def write_ledger(self, batch: LedgerBatch) -> LedgerWritten:
        answer = await self._store.write_ledger(batch)
        if answer.refused is None:
            return answer
        line, reason = answer.refused
        return msgspec.structs.replace(answer, refused=(line, hide_task_of_sequence(reason)))

    async def ledger_aside(self, ledger_no: int, **options: Any) -> list[tuple[int, str]]:
        lines = await self._store.ledger_aside(ledger_no, **options)
        return [(line, hide_task_of_sequence(reason)) for line, reason in lines]

    async def load_statuses(self, queue: str, limit: int) -> list[StatusRow]:
        return await self._store.load_statuses(queue, limit, self._reach)

    async def acknowledge(self, acknowledged: Sequence[tuple[str, int]]) -> None:
        seen = {
            (queue, row.no)
            for queue in {queue for queue, _ in acknowledged}
            for row in await self.load_statuses(queue, ACKNOWLEDGED_MAX)
        }
        await self._store.acknowledge([one for one in acknowledged if one in seen])


def narrow_filter(which: TaskFilter, reach: Reach) -> TaskFilter:
    """Narrow a filter to what a token reaches."""
    return msgspec.structs.replace(which, apps=reach.apps, workflows=reach.workflows)


def narrow_store(store: StateStore, reach: Reach) -> StateStore:
    """Narrow a store to what a token reaches; the store itself, if that is all of it."""
    return store if reach.is_whole else cast(StateStore, ReachedStore(store, reach))


T = TypeVar("T")
GRACE_SECONDS = 0.5  # for a request that only reads and is about to end by itself


class ShutdownSignal:
    """Flag that notifies requests which wait for news that the server is about to end."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def begin(self) -> None:
        """Set the flag. Requests that wait for news are answered now."""
        self._event.set()

    @property
    def has_begun(self) -> bool:
        """Returns True once the server is about to end."""
        return self._event.is_set()

    async def wait(self) -> None:
        """Wait until the server is about to end. A route that waits for news waits for this too, and ends immediately."""
        await self._event.wait()

    async def run_until_begun(self, work: Awaitable[T]) -> T:
        """Run what changes nothing, so that it may be cut short when the server ends. Raises Problem (stopping)."""
        running = asyncio.ensure_future(work)
        ending = asyncio.ensure_future(self._event.wait())
        try:
            await asyncio.wait({running, ending}, return_when=asyncio.FIRST_COMPLETED)
            if not running.done():
                await asyncio.wait({running}, timeout=GRACE_SECONDS)
            if not running.done():
                raise build_shutdown_problem()
            return running.result()
        finally:
            ending.cancel()
            running.cancel()


# The body of each answer passes ``withhold``. These tables say which members of which types hold payloads of users or reasons of
# failures. An event of a history or of a reply queue is plain JSON, of which ``EVENT_PAYLOADS`` and ``EVENT_REASONS`` name the
# members. A new member of type Raw, Any or dict must stand here or among those that hold neither: a test compares.
PAYLOADS: dict[type[msgspec.Struct], frozenset[str]] = {
    TaskAnswer: frozenset({"arguments", "output", "record", "published"}),
    ShownStep: frozenset({"arguments", "asked", "result", "checkpoint", "published"}),
    ShownVersion: frozenset({"arguments"}),
    ShownByHand: frozenset({"value"}),
    ShownLateAnswer: frozenset({"answer"}),
    ShownReason: frozenset({"request"}),
    ShownResult: frozenset({"result"}),
    ShownPublished: frozenset({"value"}),
    ShownSignal: frozenset({"value", "reply"}),
    RequestAnswer: frozenset({"reply"}),
    StepFailure: frozenset({"details"}),
    EndAnswer: frozenset({"output"}),
    ExplanationAnswer: frozenset({"results", "output", "record", "published"}),
    ScheduleView: frozenset({"arguments"}),
    ConvoyView: frozenset({"value"}),
    TaskInput: frozenset({"recorded"}),
}
REASONS: dict[type[msgspec.Struct], frozenset[str]] = {
    EndAnswer: frozenset({"reason"}),
    StandingTask: frozenset({"reason"}),
    AgentView: frozenset({"reason"}),
    ConvoyView: frozenset({"set_aside_tasks"}),
    ShownSignal: frozenset({"why"}),
}
EVENTS = frozenset({"event", "events"})  # members that hold events as plain JSON
# Hashes of payloads are withheld like payloads: the one who knows what a payload may be could try all of them.
EVENT_PAYLOADS = frozenset(
    {"arguments", "body", "details", "limits", "output", "replaces", "reply", "request", "result", "value"}
)
EVENT_REASONS = frozenset({"reason"})
_NOTHING: frozenset[str] = frozenset()
_RAW_NULL = msgspec.Raw(b"null")


def withhold(value: T, held: AbstractSet[str]) -> T:
    """Return an answer without what the holder of these scopes may not read; the same value if that is nothing."""
    withheld = (not may_read_payloads(held), not may_read_reasons(held))
    shown: T = _withhold(value, withheld) if any(withheld) else value
    return shown


def _withhold(value: Any, withheld: tuple[bool, bool]) -> Any:
    if isinstance(value, msgspec.Struct):
        return _withhold_of_struct(value, withheld)
    if type(value) in (tuple, list):
        return type(value)(_withhold(one, withheld) for one in value)
    if type(value) is dict:
        return {name: _withhold(one, withheld) for name, one in value.items()}
    return value


def _withhold_of_struct(value: msgspec.Struct, withheld: tuple[bool, bool]) -> msgspec.Struct:
    substitutes = _list_substitutes(type(value), withheld)
    changed = {}
    for name in value.__struct_fields__:
        before = getattr(value, name)
        if name in substitutes:
            after = substitutes[name] if before is not None else None
        elif name in EVENTS:
            after = withhold_of_events(before, withheld)
        else:
            after = _withhold(before, withheld)
        if after is not before:
            changed[name] = after
    return msgspec.structs.replace(value, **changed) if changed else value


def withhold_of_events(value: Any, withheld: tuple[bool, bool]) -> Any:
    """Return events of a history or a reply queue without what is withheld."""
    payloads, reasons = withheld
    names = (EVENT_PAYLOADS if payloads else _NOTHING) | (EVENT_REASONS if reasons else _NOTHING)
    return _drop_members(value, names)


def _drop_members(value: Any, names: frozenset[str]) -> Any:
    if isinstance(value, list | tuple):
        return type(value)(_drop_members(one, names) for one in value)
    if isinstance(value, dict):
        return {name: _drop_members(one, names) for name, one in value.items() if name not in names}
    return value


@functools.cache
def _list_substitutes(of: type[msgspec.Struct], withheld: tuple[bool, bool]) -> dict[str, Any]:
    """List the members of a type that are withheld, each with the value that stands in its place."""
    names = {
        name
        for table, is_withheld in zip((PAYLOADS, REASONS), withheld, strict=True)
        if is_withheld
        for name in list_members(table, of)
    }
    return {field.name: _choose_substitute(field) for field in msgspec.structs.fields(of) if field.name in names}


def list_members(table: dict[type[msgspec.Struct], frozenset[str]], of: type) -> Iterable[str]:
    """List the members that a table names of a type, with those of the types that it is made of."""
    return (name for one in of.__mro__ for name in table.get(one, ()))


def _choose_substitute(field: msgspec.structs.FieldInfo) -> Any:
    """Choose what stands for a member that is withheld: it is left out if that may be, else it is empty."""
    if field.type is Any:
        return field.default
    parts = get_args(field.type) or (field.type,)
    if msgspec.UnsetType in parts:
        return msgspec.UNSET
    if msgspec.Raw in parts:
        return _RAW_NULL
    return "" if field.type is str else ()


class Caller(msgspec.Struct, frozen=True):
    """Sender of a request.

    Args:
        name: signs each act in the history: the token's name, or what the proxy says. Never what the request says.
        scopes: what the caller may do.
        credential: what requests are counted by, like the id of a token; empty: the name.
        reach: the Apps and workflows that the caller is restricted to.
        cap: on the caller's open tasks; None: any number.
    """

    name: str
    scopes: frozenset[str]
    credential: str = ""
    reach: Reach = ANY_REACH
    cap: OpenTaskCap | None = None


class HttpCall:
    """One request that has passed the gate.

    Args:
        client: the App of this server.
        caller: who sends it.
        body: its bytes, within the limit.
        request: for headers and the state of the connection.
        shutdown: whether the server is about to end; a route that waits for news waits for it too.
        confirm: admits the caller once more, if the seconds that it is given are many; see ``Gate.confirm``.
        place: among the requests of the caller. A route says there that it waits for news.
    """

    def __init__(
        self,
        client: Client,
        caller: Caller,
        body: bytes,
        request: Request,
        shutdown: ShutdownSignal,
        confirm: Callable[[float], Awaitable[None]],
        place: RequestPlace,
    ) -> None:
        self._client = client
        self.caller = caller
        self.body = body
        self.request = request
        self.shutdown = shutdown
        self.confirm = confirm
        self.place = place
        self._session: Session | None = None

    @property
    def client(self) -> Client:
        """The App, open. Raises Problem - it is not open."""
        if not self._client.session.is_open:
            raise Problem(NOT_OPEN, f"App {self._client.session.app} is not open in this process")
        return self._client

    @property
    def session(self) -> Session:
        """The Session of the App, open, with the part of its store that the caller reaches. Raises Problem - it is not open."""
        if self._session is None:
            whole, reach = self.client.session, self.caller.reach
            codes = {name: code for name, code in whole.codes.items() if reach.includes(whole.app, name)}
            is_whole = reach.is_whole and self.caller.cap is None
            self._session = (
                whole if is_whole else whole.narrow(narrow_store(whole.store, reach), codes, self.caller.cap)
            )
        return self._session

    @property
    def root(self) -> str:
        """The path under which the API is mounted; empty: it is not."""
        root: str = self.request.scope.get("root_path", "")
        return root

    @property
    def payloads(self) -> Payloads:
        """Value of ``payloads`` in an answer."""
        return "included" if may_read_payloads(self.caller.scopes) else "withheld"

    def encode(self, answer: Any) -> bytes:
        """Encode what a route answers, without what the caller may not read."""
        return msgspec.json.encode(self.show(answer))

    def show(self, answer: T) -> T:
        """Return an answer without what the caller may not read: see ``withhold``."""
        return withhold(answer, self.caller.scopes)

    def read(self, kind: type[T]) -> T:
        """Read the body as a Struct; the gate has refused doubtful JSON. Raises Problem - another shape."""
        try:
            return msgspec.json.decode(self.body, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise Problem(INVALID_JSON, f"the body: {error}") from error


async def _get_call(request: Request) -> HttpCall:  # FastAPI would run a plain function in a thread
    call: HttpCall = request.scope["arriero.call"]
    return call


Call = Annotated[HttpCall, Depends(_get_call)]
