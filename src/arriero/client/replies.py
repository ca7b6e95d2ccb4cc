"""Status messages of tasks in a reply queue: in order, at least once, without polling tasks."""

import asyncio
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from ..errors import StoreError
from ..model import StatusKind, StatusRow
from ..model.instants import as_datetime
from ..runtime.ports import Ports
from ..store.committer import Committer

if TYPE_CHECKING:  # only who opens a store pays for its operations
    from ..store.state_store import StateStore

PAGE = 100  # statuses read at a time
ASK_SECONDS = 0.02
ASK_SECONDS_MAX = 0.25


class _Data(msgspec.Struct, frozen=True):
    reason: str = ""
    cause: str = ""
    step: str = ""
    code: str = ""
    output: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    count: int = 0
    public: str = ""
    value: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    question: str = ""
    of: str = ""


_read_data = msgspec.json.Decoder(_Data).decode


class Status(msgspec.Struct, frozen=True):
    """One message of a reply queue.

    Args:
        task_id: the task's business id; empty for ``dropped``.
        number: of the task's statuses: 1, 2, ... without gaps; 0 for ``dropped`` and ``progress``.
        kind: ``received``; ``started`` (a Scheduler took it up, or an operator resubmitted it); ``completed``; ``failed``
            (its undo began); ``compensated``; ``held`` (it waits for an operator); ``dropped``: a gap
            mark, ``dropped`` statuses of this queue were older than ``replies_keep_seconds`` and no longer exist;
            ``progress``: the task or a step has published ``value``. Of these the latest is kept, at most one a second;
            ``asked``: it waits for the answer of operators.
        incarnation: of the task; ``completed``, ``compensated`` and ``held`` are the last of one.
        reason: of ``failed``, ``compensated`` and ``held``: why, for operators.
        public: of these: what a customer may read.
        output: of ``completed``, as JSON says it.
        step: of ``progress``: the label of the step that published; empty: workflow code did.
        value: of ``progress``, as JSON says it.
        question, of: of ``asked``: the text, and who is asked.
        source, data: of the CloudEvent.
    """

    task_id: str
    number: int
    kind: StatusKind
    queue: str
    workflow: str
    incarnation: int
    at: datetime
    reason: str
    cause: str
    step: str
    code: str
    output: Any
    dropped: int
    source: str
    id: str
    data: dict[str, Any]
    public: str = ""
    value: Any = None
    question: str = ""
    of: str = ""

    def cloud_event(self) -> dict[str, Any]:
        """This status as a CloudEvent 1.0 in JSON's structured form; ``subject`` is the task's business id."""
        about = {
            "number": self.number,
            "kind": self.kind,
            "workflow": self.workflow,
            "incarnation": self.incarnation,
            "queue": self.queue,
        }
        event: dict[str, Any] = {
            "specversion": "1.0",
            "id": self.id,
            "source": self.source,
            "type": "arriero.replies.dropped" if self.kind == "dropped" else f"arriero.task.{self.kind}",
            "time": self.at.isoformat(),
            "datacontenttype": "application/json",
            "data": about | self.data,
        }
        return event | {"subject": self.task_id} if self.task_id else event


def build_status(row: StatusRow, store_id: str) -> Status:
    """Build the status that a reader gets from its row."""
    data = _read_data(row.data)
    return Status(
        row.task_id,
        row.number,
        row.kind,
        row.queue,
        row.workflow,
        row.incarnation,
        as_datetime(row.at),
        data.reason,
        data.cause,
        data.step,
        data.code,
        msgspec.json.decode(data.output) if isinstance(data.output, msgspec.Raw) else None,
        data.count,
        f"/arriero/{store_id}",
        f"{row.task_no}-{row.number}" if row.number else f"{row.kind}-{row.no}",
        msgspec.json.decode(row.data),
        data.public,
        msgspec.json.decode(data.value) if isinstance(data.value, msgspec.Raw) else None,
        data.question,
        data.of,
    )


class Replies:
    """The messages of one queue, for ``async for``. Taking the next acknowledges the one before.

    What was taken last is not acknowledged: the one who reads the queue next gets it again. A queue has one reader; with
    two, each message reaches at least one of them. A cancelled wait for the next message loses nothing.
    """

    def __init__(self, queue: str, store: "StateStore", ports: Ports, acknowledger: "Acknowledger") -> None:
        self._queue = queue
        self._store = store
        self._ports = ports
        self._acknowledger = acknowledger
        self._ready: deque[StatusRow] = deque()
        self._taken: StatusRow | None = None
        self._given: set[int] = set()  # numbers given out since; their acknowledgement may still be running
        self._never = asyncio.Event()

    def __aiter__(self) -> "Replies":
        return self

    async def __anext__(self) -> Status:
        """The next message, however long it takes. Raises StoreError."""
        self.acknowledge()
        wait = ASK_SECONDS
        while not self._ready:
            if await self._load():
                break
            await self._ports.clock.idle(self._never, wait)
            wait = min(wait * 1.5, ASK_SECONDS_MAX)
        return self._give()

    async def next_ready(self) -> Status | None:
        """The next message, if there is one now. Raises StoreError."""
        self.acknowledge()
        return self._give() if self._ready or await self._load() else None

    def acknowledge(self) -> None:
        """Acknowledge the message taken last; taking the next one does this."""
        if self._taken is not None:
            self._acknowledger.put(self._taken.queue, self._taken.no)
            self._taken = None

    def _give(self) -> Status:
        self._taken = self._ready.popleft()
        self._given.add(self._taken.no)
        return build_status(self._taken, self._store.store_id)

    async def _load(self) -> bool:
        await self._acknowledger.wait_until_written()
        rows = await self._store.load_statuses(self._queue, PAGE)
        fresh = [row for row in rows if row.no not in self._given]
        # What is acknowledged does not come again, unless the acknowledgement was lost: then it must be sent again.
        for row in rows:
            if row.no in self._given and row is not self._taken:
                self._acknowledger.put(row.queue, row.no)
        self._given = {row.no for row in rows if row.no in self._given}
        self._ready.extend(fresh)
        return bool(fresh)

    async def aclose(self) -> None:
        """Stop reading, once the acknowledgements are written."""
        await self._acknowledger.wait_until_written()


class Acknowledger:
    """Acknowledgements of one App, written in groups."""

    def __init__(self, store: "StateStore", ports: Ports) -> None:
        self._store = store
        self._waiting = 0
        self._is_closed = False
        self._settled = asyncio.Event()
        self._settled.set()
        self._committer: Committer[tuple[str, int], None] = Committer(
            self._write,
            sleep=ports.clock.sleep,
            monotonic=ports.clock.monotonic,
            repeat=lambda _: False,  # an acknowledgement that is lost costs a message that comes again
            on_trouble=lambda _: None,
        )
        self._committer.start()

    async def _write(self, batch: Sequence[tuple[str, int]]) -> list[None]:
        await self._store.acknowledge(batch)
        return [None] * len(batch)

    def put(self, queue: str, number: int) -> None:
        """Acknowledge soon. Once the App is closed this does nothing, and the message comes again."""
        if self._is_closed:
            return
        self._waiting += 1
        self._settled.clear()
        self._committer.put((queue, number), self._count_answer)

    def _count_answer(self, _answer: BaseException | None) -> None:
        self._waiting -= 1
        if not self._waiting:
            self._settled.set()

    async def wait_until_written(self) -> None:
        """Wait until what was acknowledged is written, or lost."""
        await self._settled.wait()

    def abandon(self) -> None:
        """End without writing what waits: it comes again."""
        self._committer.abandon()

    async def close(self) -> None:
        """Write what waits, then end."""
        self._is_closed = True
        with suppress(StoreError):
            await self._committer.stop()
