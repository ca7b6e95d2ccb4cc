"""Group commit: what was decided while the last commit was running goes out with the next. No timer.

One commit is one fsync, however many commands share it. After a StoreError the outcome of a batch is unknown; every
command is guarded, so the batch is simply sent again, and what had been written the first time is refused then.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import msgspec

from ..errors import ArrieroError, StoreError
from ..model import TaskRow
from ..model.answers import Answer, Applied, Refusal
from ..model.commands import AnyCommand
from ..model.tags import read_tags
from ..system.loops import Loop, LoopGuard
from .contract import Busy, Unanswered, Unwritten

if TYPE_CHECKING:  # it loads the operations, which only who opens a store pays for
    from .state_store import StateStore


C = TypeVar("C")
A = TypeVar("A")

BATCH_MAX = 1_000  # commands in one transaction: enough to make the fsync cheap, few enough to keep latency low
RETRY_SECONDS = 0.2
RETRY_SECONDS_MAX = 5.0

BUSY_SECONDS = 0.1  # until a command whose task another transaction has open is sent again; doubled each time, up to
BUSY_SECONDS_LONGEST = 1.0
BUSY_SECONDS_MAX = 10.0  # how long the one who does not repeat waits for that transaction's end

OnAnswer = Callable[[A | BaseException], None]


class _PendingCommand(msgspec.Struct, Generic[C, A], eq=False):
    """A command, who is notified of its answer, and since when another transaction stands in its way."""

    command: C
    on_answer: "OnAnswer[A]"
    is_told: bool = False
    had_pause: bool = (
        False  # whether it was sent alone a moment after its transaction raised another exception than StoreError
    )
    busy_since: float | None = None
    pause: float = BUSY_SECONDS

    def tell(self, answer: A | BaseException) -> None:
        """The first answer counts: what is answered twice was in a batch that broke in between.

        An error of the one who asked must not cost the others their answers, nor the process its committer.
        """
        if self.is_told:
            return
        self.is_told = True
        try:
            self.on_answer(answer)
        except Exception as error:
            context = {
                "message": f"the answer {type(answer).__name__} of the store could not be handled",
                "exception": error,
            }
            asyncio.get_running_loop().call_exception_handler(context)


class CommitCounts:
    """Counts of commits for monitors. They only grow, also when the process begins again with a new committer.

    Attributes:
        sizes: commits by the bit length of their number of commands: ``sizes[3]`` had 4 to 7 of them.
        refused: commands whose guard refused them, by verdict.
        ended: tasks that a command of this process ended, by state.
        counted_tags: names of the tags that ended tasks are counted by, too.
        ended_by_tag: those tasks, by tag, value and state; of each tag at most 100 values, the others count as ``other``.
    """

    def __init__(self) -> None:
        self.counted_tags: tuple[str, ...] = ()
        self.ended_by_tag: dict[str, dict[str, Counter[str]]] = {}
        self.commands = 0
        self.sizes = [0] * (BATCH_MAX.bit_length() + 1)
        self.refused: Counter[str] = Counter()
        self.ended: Counter[str] = Counter()

    def note_end(self, task: TaskRow) -> None:
        """Count a task that has ended."""
        self.ended[task.state] += 1
        if task.tags is None or not self.counted_tags:
            return
        from ..core.tags import choose_counted_value  # only who counts by tags loads it

        tags = read_tags(task.tags)
        for name in self.counted_tags:
            if name in tags:
                counted = self.ended_by_tag.setdefault(name, {})
                counted.setdefault(choose_counted_value(tags[name], counted), Counter())[task.state] += 1


class Committer(Generic[C, A]):
    """Group commit of commands.

    Args:
        write: one transaction.
        sleep: waits between repeats after a StoreError.
        repeat: whether to send a command again after a StoreError; else the error is its answer.
        on_trouble: called with every StoreError, and with any other exception of a transaction.
        on_batch: called when the answers of a batch were given; it raises nothing.
        counts: for monitors.
        has_ended_task: returns True if a command ended its task, whose row it left so.
    """

    def __init__(
        self,
        write: Callable[[Sequence[C]], Awaitable[Sequence[A | ArrieroError]]],
        *,
        sleep: Callable[[float], Awaitable[None]],
        monotonic: Callable[[], float],
        repeat: Callable[[C], bool],
        on_trouble: Callable[[Exception], None],
        on_batch: Callable[[], None] | None = None,
        counts: CommitCounts | None = None,
        has_ended_task: Callable[[C, TaskRow], bool] = lambda _command, _task: False,
    ) -> None:
        self._write = write
        self._sleep = sleep
        self._monotonic = monotonic
        self._repeat = repeat
        self._on_trouble = on_trouble
        self._on_batch = on_batch
        self._counts = CommitCounts() if counts is None else counts
        self._has_ended_task = has_ended_task
        self._waiting: deque[_PendingCommand[C, A]] = deque()
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._stopping = self._hurried = False
        self._guard = LoopGuard(Loop.COMMITTER, monotonic)
        self._batch: list[_PendingCommand[C, A]] = []  # that is being committed
        self._leaving = 0  # commands in the batch that is being committed
        self._busy: dict[asyncio.Task[None], _PendingCommand[C, A]] = {}  # whose task others have open: put again soon
        self.left_at = 0.0  # monotonic time at which the batch being answered left: no store clock was read before it
        self.commits = 0
        self.commands = 0

    def start(self, on_end: Callable[[], None] = lambda: None) -> None:
        """Begin to commit. ``on_end``: called when nobody commits any longer, for whatever reason."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="arriero-committer")
        self._task.add_done_callback(lambda _: on_end())

    async def stop(self) -> None:
        """Commit what waits, then end. The one who is cancelled while it waits for that does not cancel the commit."""
        if self._task is not None:
            self._stopping = True
            self._wake.set()
            await asyncio.wait({self._task})
            self._task = None
        for waiting in list(self._busy):
            waiting.cancel()
        if self._busy:
            await asyncio.wait(list(self._busy))

    def hurry(self) -> None:
        """Send nothing more: what waits gets that answer immediately, what is in transit gets its answer."""
        self._stopping = self._hurried = True
        while self._waiting:
            self._waiting.popleft().tell(Unwritten.as_it_closes())
        self._wake.set()

    def abandon(self) -> None:
        """End without committing what waits, and without waiting for what is in transit; both get that answer."""
        self._stopping = True
        if self._task is not None:
            self._task.cancel()
            self._task = None
        for waiting in self._busy:
            waiting.cancel()

    def is_alive(self) -> bool:
        """Returns True if the committer takes what is put."""
        return self._task is not None and not self._task.done()

    @property
    def on_the_way(self) -> int:
        """Commands without an answer yet, but for those that wait for another transaction's end."""
        return len(self._waiting) + self._leaving

    def _has_ended(self) -> bool:
        """Returns True if a committer that stops would not commit what is put from now on."""
        return self._hurried or not self.is_alive()

    def put(self, command: C, on_answer: OnAnswer[A]) -> None:
        """Commit a command soon; its answer, or the exception that it caused, goes to ``on_answer``.

        After the end that is Unwritten: a caller must not wait indefinitely while all is being closed.
        """
        if self._stopping and self._has_ended():
            asyncio.get_running_loop().call_soon(_PendingCommand(command, on_answer).tell, Unwritten.as_it_closes())
            return
        self._waiting.append(_PendingCommand(command, on_answer))
        self._wake.set()

    async def ask(self, command: C, on_answer: OnAnswer[A] | None = None) -> A:
        """Commit a command and wait for its answer. ``on_answer``: called first, also when nobody waits any longer."""
        future: asyncio.Future[A] = asyncio.get_running_loop().create_future()

        def settle(answer: A | BaseException) -> None:
            try:
                if on_answer is not None:
                    on_answer(answer)
            finally:
                if not future.done():
                    if isinstance(answer, BaseException):
                        future.set_exception(answer)
                    else:
                        future.set_result(answer)

        self.put(command, settle)
        return await future

    async def _run(self) -> None:
        try:
            while self._waiting or not self._stopping:
                if not self._waiting:
                    self._wake.clear()
                    await self._wake.wait()
                self._batch = [self._waiting.popleft() for _ in range(min(len(self._waiting), BATCH_MAX))]
                if self._batch:
                    await self._turn()
        except GeneratorExit:  # thrown away with its event loop: no caller is left
            raise
        except BaseException:
            self._end()
            raise
        self._end()

    def _end(self) -> None:
        """Fail the pending commands, so that nobody waits for an answer that never comes."""
        for asked in self._batch:
            asked.tell(Unanswered("the store was closed before it had answered"))
        self.hurry()

    async def _turn(self) -> None:
        try:
            await self._commit(self._batch)
        except Exception as error:
            self._guard.tell(error)
            again = {id(asked) for asked in (*self._waiting, *self._busy.values())}  # they get their answers later
            for asked in self._batch:
                if id(asked) not in again:
                    asked.tell(error)
        self._batch, self._leaving = [], 0
        if self._on_batch is not None:
            with self._guard:
                self._on_batch()

    async def _commit(self, batch: list[_PendingCommand[C, A]]) -> None:
        delay = RETRY_SECONDS
        while batch:
            self._leaving = len(batch)
            self.left_at = self._monotonic()
            try:
                answers = await self._write([asked.command for asked in batch])
            except StoreError as error:
                self._on_trouble(error)
                batch = self._to_repeat(batch, error)
                if batch:
                    await self._sleep(delay)
                delay = min(delay * 2, RETRY_SECONDS_MAX)
                continue
            except Exception as error:
                self._on_trouble(error)
                await self._halve(batch, error)
                return
            self.commits += 1
            counts = self._counts
            self.commands += len(batch)
            counts.commands += len(batch)
            counts.sizes[len(batch).bit_length()] += 1
            for asked, answer in zip(batch, answers, strict=True):
                self._leaving -= 1
                if isinstance(answer, Busy):
                    self._put_again(asked, answer)
                elif isinstance(answer, Unanswered):  # of this one alone
                    self._on_trouble(answer)
                    self._waiting.extend(self._to_repeat([asked], answer))
                else:
                    if isinstance(answer, Refusal):
                        counts.refused[answer.verdict] += 1
                    elif (
                        isinstance(answer, Applied)
                        and answer.task.ended_at
                        and self._has_ended_task(asked.command, answer.task)
                    ):
                        counts.note_end(answer.task)
                    asked.tell(answer)
            return

    def _put_again(self, asked: _PendingCommand[C, A], busy: Busy) -> None:
        """Put commands again, each by itself, that another transaction stands in the way of; the others continue."""
        now = self._monotonic()
        asked.busy_since = now if asked.busy_since is None else asked.busy_since
        gives_up = now - asked.busy_since > BUSY_SECONDS_MAX and not self._repeat(asked.command)
        if self._stopping or gives_up:
            asked.tell(busy)
            return
        if now - asked.busy_since > BUSY_SECONDS_MAX:
            self._on_trouble(busy)
        waiting = asyncio.get_running_loop().create_task(self._put_later(asked, busy))
        self._busy[waiting] = asked
        waiting.add_done_callback(lambda task: self._busy.pop(task, None))

    async def _put_later(self, asked: _PendingCommand[C, A], busy: Busy) -> None:
        try:
            await self._sleep(asked.pause)
        finally:
            asked.pause = min(asked.pause * 2, BUSY_SECONDS_LONGEST)
            if self._stopping:
                asked.tell(busy)
            else:
                self._waiting.append(asked)
                self._wake.set()

    def _to_repeat(self, batch: list[_PendingCommand[C, A]], error: StoreError) -> list[_PendingCommand[C, A]]:
        """Return the commands to send again, and answer the others. A process that ends does not wait for a silent store."""
        again: list[_PendingCommand[C, A]] = []
        for asked in batch:
            if not self._stopping and self._repeat(asked.command):
                again.append(asked)
            else:
                asked.tell(error)
        return again

    async def _halve(self, batch: list[_PendingCommand[C, A]], error: Exception) -> None:
        """A command that cannot be written must not hold up the others: find it."""
        if len(batch) == 1:
            asked = batch[0]
            if asked.had_pause or self._stopping or not self._repeat(asked.command):
                asked.tell(error)
            else:  # a moment later, alone: it may have been the machine's fault, not its own
                asked.had_pause = True
                await self._sleep(RETRY_SECONDS)
                await self._commit(batch)
            return
        middle = len(batch) // 2
        await self._commit(batch[:middle])
        await self._commit(batch[middle:])


class RetryClock(Protocol):
    """The clock that a retry waits by."""

    def monotonic(self) -> float: ...
    async def sleep(self, seconds: float) -> None: ...


async def apply_patiently(store: "StateStore", commands: Sequence[AnyCommand], clock: RetryClock) -> list[Answer]:
    """The answers, in order. Raises StoreError, Busy when another transaction keeps all of them."""
    since, pause = clock.monotonic(), BUSY_SECONDS
    answers = list(await store.apply(commands))
    while waiting := [at for at, answer in enumerate(answers) if isinstance(answer, Busy)]:
        if clock.monotonic() - since > BUSY_SECONDS_MAX:
            break
        await clock.sleep(pause)
        pause = min(pause * 2, BUSY_SECONDS_LONGEST)
        for at, answer in zip(waiting, await store.apply([commands[at] for at in waiting]), strict=True):
            answers[at] = answer
    return _collect_answers(answers)


def _collect_answers(answers: Sequence[Answer | ArrieroError]) -> list[Answer]:
    """An error is raised only where there is nothing else to say: what was done is not kept from the one who asked."""
    errors = [answer for answer in answers if isinstance(answer, ArrieroError)]
    if errors and len(errors) == len(answers):
        raise errors[0]
    return [Refusal("busy", str(one)) if isinstance(one, ArrieroError) else one for one in answers]
