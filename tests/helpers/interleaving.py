"""Two sessions on a real server, statement by statement, in every order in which their steps can follow one another.

Each side runs an operation of the store in a thread and a session of its own. Before a statement it stops until it is
given its turn. A side that waits for a lock of the other has no turns until it goes on; that it waits is asked of the
server. Where a side could go on and the other too, both are tried: a search through the whole tree of such choices.
"""

import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise
from queue import Empty, SimpleQueue
from typing import Any

import msgspec
import psycopg
from waiting import HangLimit

from arriero.store.columns import load_statements
from arriero.store.postgres.pipeline import PendingAnswer, Pipeline
from arriero.store.postgres.session import PostgresSession, Statements, TransactionLimits
from arriero.store.postgres.target import target_of

STEPS_MAX = 7
PATIENCE_SECONDS = 60.0  # until a side that neither arrives nor waits for a lock fails the test
LIMITS = TransactionLimits(lock=60.0, statement=60.0, idle=60.0)
# They lock nothing and read nothing that the other side could change: no order of theirs makes a difference.
# Limits: no Agent of a scene has some, so nothing is found and nothing locked. So it is with convoys that gather a batch.
WITHOUT_TURN = frozenset(
    ("BEGIN", "settings", "select_now", "take_numbers", "select_limits", "lock_limits", "lock_full_convoys")
)
STOPPED, WAITING, OVER = "stopped", "waiting", "over"

Operation = Callable[[PostgresSession], Any]


class Stuck(AssertionError):
    """Neither side can go on."""


def replace_statement(statements: Statements, name: str, sql: str) -> None:
    """Have ``sql`` run where the statement ``name`` is asked for: how a test shows what a statement is for."""
    statements._filled[load_statements("arriero.store.postgres")[name]] = sql


def label_of(statement: str) -> str:
    """A statement's name, or for others its verb and table."""
    if found := re.match(r"-- (\w+)", statement):
        return found[1]
    found = re.match(r"(INSERT INTO|UPDATE) \w+\.(\w+)", statement)
    return f"{found[1].partition(' ')[0]} {found[2]}" if found else statement


def are_one_step(before: str, after: str) -> bool:
    """Two writes in a row, which nobody sees before the COMMIT; or two reads of settings, which no scene changes."""
    return (is_write(before) and is_write(after)) or before == after == "select_meta"


def is_write(label: str) -> bool:
    return label.startswith(("INSERT ", "UPDATE ", "put_"))


class SteppedPipeline(Pipeline):
    """Statements that each wait for their turn, and for their answer."""

    def __init__(self, connection: psycopg.Connection[Any], before: Callable[[str], None]) -> None:
        super().__init__(connection, prepares=True)
        self._before = before

    def ask(self, text: str, parameters: Mapping[str, Any] | None = None) -> PendingAnswer:
        self._before(label_of(text))
        asked = super().ask(text, parameters)
        self.arrive()
        return asked

    def ask_with_fields(self, text: str, fields: Iterable[object]) -> PendingAnswer:
        self._before(label_of(text))
        asked = super().ask_with_fields(text, fields)
        self.arrive()
        return asked


class SteppedSession(PostgresSession):
    """A session of the store with such statements."""

    def __init__(self, url: str, before: Callable[[str], None]) -> None:
        target = target_of(url)
        super().__init__(target, Statements(target.schema), limits=LIMITS)
        self._connection = psycopg.connect(target.conninfo, autocommit=True)
        self._pipeline = SteppedPipeline(self._connection, before)
        self.pid = self._connection.info.backend_pid


class Side:
    """One of the two. ``state``: stopped before a statement, waiting for a lock, or over."""

    def __init__(self, name: str, url: str) -> None:
        self.name = name
        self.session = SteppedSession(url, self._before)
        self.merged: frozenset[tuple[str, str]] = frozenset()
        self.steps: list[str] = []
        self.state = OVER
        self._is_free = True
        self._last = ""
        self._arrived: SimpleQueue[str] = SimpleQueue()
        self._turn: SimpleQueue[bool] = SimpleQueue()
        self._thread = ThreadPoolExecutor(1)
        self._answer: Future[Any] | None = None

    def begin(self, operation: Operation, *, alone: bool = False) -> None:
        """Let it run up to its first step, or with ``alone`` to its end."""
        self.steps, self._last, self._is_free, self.state = [], "", alone, WAITING
        self._answer = self._thread.submit(self._run, operation)

    def _run(self, operation: Operation) -> Any:
        try:
            return operation(self.session)
        finally:
            self._arrived.put(OVER)

    def _before(self, label: str) -> None:
        rides = label in WITHOUT_TURN or (self._last, label) in self.merged
        self._last = label
        if rides:
            return
        self.steps.append(label)
        if not self._is_free:
            self._arrived.put(STOPPED)
            if not self._turn.get(timeout=PATIENCE_SECONDS):
                raise Stuck(f"{self.name} is given up before {label}")

    def go(self) -> None:
        """One step."""
        self.state = WAITING
        self._turn.put(True)

    def give_up(self) -> None:
        self._turn.put(False)

    def arrived(self, seconds: float) -> bool:
        """Whether it has come to its next step, or to its end."""
        try:
            self.state = self._arrived.get(timeout=seconds)
        except Empty:
            return False
        return True

    def answer(self) -> Any:
        assert self._answer is not None
        return self._answer.result(PATIENCE_SECONDS)

    def alone(self, operation: Operation) -> Any:
        """The answer of an operation that nobody disturbs."""
        self.begin(operation, alone=True)
        answer = self.answer()
        self.arrived(PATIENCE_SECONDS)
        return answer

    def close(self) -> None:
        self.session.close()
        self._thread.shutdown()


class Ran(msgspec.Struct):
    """One schedule: which step came when, what was answered, and at each choice which of how many was taken."""

    steps: list[str]
    answers: tuple[Any, Any]
    choices: list[tuple[int, int]]
    waits: int  # how often a side waited for a lock


STEPS_OF_BOTH = 64  # more than two sides ever have


class Pair:
    """Both sides, and a connection that asks the server who waits."""

    def __init__(self, url: str) -> None:
        self.sides = (Side("first", url), Side("second", url))
        self._server = psycopg.connect(target_of(url).conninfo, autocommit=True, prepare_threshold=0)

    def close(self) -> None:
        for side in self.sides:
            side.close()
        self._server.close()

    def merge(self, rehearsed: tuple[Operation, Operation]) -> tuple[int, int]:
        """Learn the steps of each side by running it alone; answers how many each has.

        Beyond ``STEPS_MAX``, two that follow one another become one step, from the last pair on (``are_one_step``). The
        rows are locked before the first.
        """
        for side, operation in zip(self.sides, rehearsed, strict=True):
            side.merged = frozenset()
            side.alone(operation)
            steps, merged = side.steps, set[tuple[str, str]]()
            for before, after in reversed(list(pairwise(steps))):
                if len(steps) - len(merged) > STEPS_MAX and are_one_step(before, after):
                    merged.add((before, after))
            side.merged = frozenset(merged)
            side.steps = steps[: len(steps) - len(merged)]
        return len(self.sides[0].steps), len(self.sides[1].steps)

    def every_schedule(self, operations: Callable[[int], tuple[Operation, Operation]]) -> Iterator[Ran]:
        """Run all there are; each asks ``operations`` for its own two, on rows of its own."""
        begun: list[int] = []
        number = 0
        while True:
            ran = self._run(operations(number), begun)
            yield ran
            number += 1
            choices = ran.choices
            while choices and choices[-1][0] + 1 == choices[-1][1]:
                choices.pop()
            if not choices:
                return
            begun = [taken for taken, _ in choices[:-1]] + [choices[-1][0] + 1]

    def some_schedules(self, operations: Callable[[int], tuple[Operation, Operation]], count: int) -> Iterator[Ran]:
        """So many of all there are: first one side before the other, both ways, then by chance, the same each time."""
        chance = random.Random(count)
        for number in range(count):
            begun = [number] * STEPS_OF_BOTH if number < 2 else [chance.randrange(2) for _ in range(STEPS_OF_BOTH)]
            yield self._run(operations(number), begun)

    def _run(self, operations: tuple[Operation, Operation], begun: list[int]) -> Ran:
        ran = Ran([], (None, None), [], 0)
        for side, operation in zip(self.sides, operations, strict=True):
            side.begin(operation)
            self._settle(side, ran)
        while any(side.state is not OVER for side in self.sides):
            ready = [side for side in self.sides if side.state is STOPPED]
            if not ready:
                self._await_any(ran)
                continue
            taken = 0
            if len(ready) > 1:
                taken = begun[len(ran.choices)] if len(ran.choices) < len(begun) else 0
                ran.choices.append((taken, len(ready)))
            ran.steps.append(f"{ready[taken].name}: {ready[taken].steps[-1]}")
            ready[taken].go()
            for side in (ready[taken], *(other for other in self.sides if other is not ready[taken])):
                if side.state is WAITING:
                    self._settle(side, ran)
        ran.answers = (self.sides[0].answer(), self.sides[1].answer())
        return ran

    def _settle(self, side: Side, ran: Ran) -> None:
        """Until it has come to its next step, or waits for the other."""
        limit = HangLimit("a side", PATIENCE_SECONDS)
        while not side.arrived(0.002):
            found = self._server.execute("SELECT cardinality(pg_blocking_pids(%s))", (side.session.pid,)).fetchone()
            if found and found[0]:
                ran.waits += 1
                return
            if limit.is_over():
                raise Stuck(self._given_up(ran))

    def _await_any(self, ran: Ran) -> None:
        """Both waited when they were looked at. One of them goes on soon: the server's own vacuum held it up for a moment."""
        limit = HangLimit("a side", PATIENCE_SECONDS)
        while not any(side.arrived(0.002) for side in self.sides if side.state is WAITING):
            if limit.is_over():
                raise Stuck(self._given_up(ran))

    def _given_up(self, ran: Ran) -> str:
        for side in self.sides:
            if side.state is WAITING:
                self._server.execute("SELECT pg_terminate_backend(%s)", (side.session.pid,))
            elif side.state is STOPPED:
                side.give_up()
        return f"neither side goes on after {ran.steps}"
