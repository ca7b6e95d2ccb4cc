"""Group commit: what was decided while the last commit was under way goes out with the next. No timer.

One commit is one fsync, however many commands share it. After a StoreError the outcome of a batch is unknown; every
command is guarded, so the batch is simply sent again, and what had been written the first time is refused then.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from ..errors import ArrieroError, StoreError
from .base import Busy, Unanswered, Unwritten

C = TypeVar("C")
A = TypeVar("A")

BATCH_MAX = 1_000  # commands in one transaction: enough to make the fsync cheap, few enough to keep latency low
RETRY_SECONDS = 0.2
RETRY_SECONDS_MAX = 5.0

BUSY_SECONDS = 0.1  # until a command whose task another transaction has open is sent again; doubled each time, up to
BUSY_SECONDS_LONGEST = 1.0
BUSY_SECONDS_MAX = 10.0  # how long whoever does not repeat waits for that transaction's end

OnAnswer = Callable[[A | BaseException], None]


class _Asked(Generic[C, A]):
    """A command, who is told of its answer, and since when another transaction stands in its way."""

    __slots__ = ("busy_since", "command", "on_answer", "pause")

    def __init__(self, command: C, on_answer: "OnAnswer[A]") -> None:
        self.command = command
        self.on_answer = on_answer
        self.busy_since: float | None = None
        self.pause = BUSY_SECONDS


class Committer(Generic[C, A]):
    """See the module.

    Args:
        write: one transaction.
        sleep: waits between repeats after a StoreError.
        repeat: whether to send a command again after a StoreError; else the error is its answer.
        on_trouble: told of every StoreError.
        on_batch: called when the answers of a batch were told; it raises nothing.
    """

    def __init__(
        self,
        write: Callable[[Sequence[C]], Awaitable[Sequence[A | ArrieroError]]],
        *,
        sleep: Callable[[float], Awaitable[None]],
        monotonic: Callable[[], float],
        repeat: Callable[[C], bool],
        on_trouble: Callable[[StoreError], None],
        on_batch: Callable[[], None] = lambda: None,
    ) -> None:
        self._write = write
        self._sleep = sleep
        self._monotonic = monotonic
        self._repeat = repeat
        self._on_trouble = on_trouble
        self._on_batch = on_batch
        self._waiting: deque[_Asked[C, A]] = deque()
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._stopping = False
        self._leaving = 0  # commands in the batch that is being committed
        self._busy: dict[asyncio.Task[None], None] = {}  # commands whose task others have open: put again soon
        self.left_at = 0.0  # monotonic time at which the batch being answered left: no store clock was read before it
        self.commits = 0
        self.commands = 0

    def start(self) -> None:
        """Begin to commit."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="arriero-committer")

    async def stop(self) -> None:
        """Commit what waits, then end."""
        if self._task is not None:
            self._stopping = True
            self._wake.set()
            await self._task
            self._task = None
            for waiting in list(self._busy):
                waiting.cancel()
            await asyncio.gather(*self._busy, return_exceptions=True)

    def abandon(self) -> None:
        """End without committing what waits."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
        for waiting in self._busy:
            waiting.cancel()

    @property
    def on_the_way(self) -> int:
        """Commands without an answer yet, but for those that wait for another transaction's end."""
        return len(self._waiting) + self._leaving

    @property
    def _has_ended(self) -> bool:
        """Whether what is put from now on would be committed by nobody."""
        return self._stopping and (self._task is None or self._task.done())

    def put(self, command: C, on_answer: OnAnswer[A]) -> None:
        """Commit a command soon; its answer, or the exception that it caused, goes to ``on_answer``.

        After the end that is Unwritten: whoever asks while all is being closed must not wait for ever.
        """
        if self._has_ended:
            asyncio.get_running_loop().call_soon(_tell, on_answer, Unwritten.as_it_closes())
            return
        self._waiting.append(_Asked(command, on_answer))
        self._wake.set()

    async def ask(self, command: C, on_answer: OnAnswer[A] | None = None) -> A:
        """Commit a command and wait for its answer. ``on_answer``: told first, also when nobody waits any more."""
        future: asyncio.Future[A] = asyncio.get_running_loop().create_future()

        def settle(answer: A | BaseException) -> None:
            try:
                if on_answer is not None:
                    on_answer(answer)
            finally:
                if not future.done():
                    _settle(future, answer)

        self.put(command, settle)
        return await future

    async def _run(self) -> None:
        while self._waiting or not self._stopping:
            if not self._waiting:
                self._wake.clear()
                await self._wake.wait()
            batch = [self._waiting.popleft() for _ in range(min(len(self._waiting), BATCH_MAX))]
            if batch:
                await self._commit(batch)
                self._leaving = 0
                self._on_batch()

    async def _commit(self, batch: list[_Asked[C, A]]) -> None:
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
                await self._halve(batch, error)
                return
            self.commits += 1
            self.commands += len(batch)
            for asked, answer in zip(batch, answers, strict=True):
                self._leaving -= 1
                if isinstance(answer, Busy):
                    self._put_again(asked, answer)
                elif isinstance(answer, Unanswered):  # of this one alone
                    self._on_trouble(answer)
                    self._waiting.extend(self._to_repeat([asked], answer))
                else:
                    _tell(asked.on_answer, answer)
            return

    def _put_again(self, asked: _Asked[C, A], busy: Busy) -> None:
        """What another transaction stands in the way of waits by itself; the others go on."""
        now = self._monotonic()
        asked.busy_since = now if asked.busy_since is None else asked.busy_since
        gives_up = now - asked.busy_since > BUSY_SECONDS_MAX and not self._repeat(asked.command)
        if self._stopping or gives_up:
            _tell(asked.on_answer, busy)
            return
        if now - asked.busy_since > BUSY_SECONDS_MAX:
            self._on_trouble(busy)
        waiting = asyncio.get_running_loop().create_task(self._put_later(asked, busy))
        self._busy[waiting] = None
        waiting.add_done_callback(lambda task: self._busy.pop(task, None))

    async def _put_later(self, asked: _Asked[C, A], busy: Busy) -> None:
        try:
            await self._sleep(asked.pause)
        finally:
            asked.pause = min(asked.pause * 2, BUSY_SECONDS_LONGEST)
            if self._stopping:
                _tell(asked.on_answer, busy)
            else:
                self._waiting.append(asked)
                self._wake.set()

    def _to_repeat(self, batch: list[_Asked[C, A]], error: StoreError) -> list[_Asked[C, A]]:
        """What is sent again; the others are told. A process that ends does not wait for a silent store."""
        again: list[_Asked[C, A]] = []
        for asked in batch:
            if not self._stopping and self._repeat(asked.command):
                again.append(asked)
            else:
                _tell(asked.on_answer, error)
        return again

    async def _halve(self, batch: list[_Asked[C, A]], error: Exception) -> None:
        """A command that cannot be written must not hold up the others: find it."""
        if len(batch) == 1:
            _tell(batch[0].on_answer, error)
            return
        middle = len(batch) // 2
        await self._commit(batch[:middle])
        await self._commit(batch[middle:])


def _settle(future: asyncio.Future[A], answer: A | BaseException) -> None:
    if isinstance(answer, BaseException):
        future.set_exception(answer)
    else:
        future.set_result(answer)


def _tell(on_answer: OnAnswer[A], answer: A | BaseException) -> None:
    """An error of whoever asked must not cost the others their answers, nor the process its committer."""
    try:
        on_answer(answer)
    except Exception as error:
        context = {
            "message": f"the answer {type(answer).__name__} of the store could not be handled",
            "exception": error,
        }
        asyncio.get_running_loop().call_exception_handler(context)
