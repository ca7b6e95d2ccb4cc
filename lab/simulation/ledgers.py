"""Ledgers in a world: their submitters die, come twice, and find them discarded; each ledger counts as a whole or not at all."""

import asyncio
import copy
from collections.abc import Callable, Iterator
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, Any

from arriero.audit.check import Violation
from arriero.client.ledger import Entry, LedgerSubmission, discard_ledger
from arriero.client.ledger_handle import wait_for_ledger
from arriero.client.session import Session
from arriero.errors import InvalidInput, StoreError, UnknownName, WorkflowPaused
from arriero.events import read_events
from arriero.events.convoy import ConvoyPlaced
from arriero.events.store import LedgerOpenedEvent
from arriero.events.task import TaskSubmitted, TaskTerminal
from arriero.model import HistoryRow, LedgerState
from arriero.runtime.result_waiters import ResultWaiters

if TYPE_CHECKING:
    from .world import World

SHARE = 0.25  # of the seeds with operators and without damage
NAMES = ("march", "april", "may")
LINES_MAX = 14
BATCH_MAX = 5  # lines in one transaction
NUMBERS_FROM = 20_000  # the numbers of their calls begin here, so that none is a client's
BAD_SHARE = 0.3  # of the ledgers: one line is bad
KEPT_UP_SHARE = 0.5  # of the ledgers: a caller submits them until there is an answer
TWICE_SHARE = 0.4  # of those: two processes do
AGAIN_SECONDS_MAX = 3.0
SUBMITS_SECONDS = 0.15  # about what a submission takes
THINKS_SECONDS_MAX = 2.0  # between an operator's look at a ledger and the decision


class Plan:
    """One ledger as its producer means it."""

    def __init__(self, name: str, random: Random, calls: tuple[Callable[..., Any], ...], in_line: Any) -> None:
        self.name = name
        lines = random.randint(2, LINES_MAX)
        self.batch = random.randint(1, BATCH_MAX)
        self.bad_line = random.randint(1, lines) if random.random() < BAD_SHARE else 0
        self.sets_aside = random.random() < 0.5
        self.is_kept_up = random.random() < KEPT_UP_SHARE
        self.is_twice = self.is_kept_up and random.random() < TWICE_SHARE
        self._lines = [
            (random.choice(calls), random.random() < 0.2, random.choice((None, None, *in_line))) for _ in range(lines)
        ]
        self.begins_after = random.uniform(0, 15)
        self._first = NUMBERS_FROM + 100 * NAMES.index(name)
        self.acknowledged = False

    @property
    def is_refused(self) -> bool:
        """Whether a bad line makes an end of all of it."""
        return bool(self.bad_line) and not self.sets_aside

    def entries(self, *, changed: bool = False) -> Iterator[Entry]:
        """The lines; the same each time. ``changed``: one has other arguments."""
        to_change = next(line for line in (1, 2) if line != self.bad_line) if changed else 0
        for line, (call, refuse, in_line) in enumerate(self._lines, 1):
            number = self._first + line + (50 if line == to_change else 0)
            if line == self.bad_line:
                yield Entry.bad("no such article")
            elif in_line is None:
                yield Entry(call(number, refuse), priority=number % 10)
            else:
                yield Entry(in_line(number, refuse), convoy=f"of-{self.name}", priority=number % 10)

    @property
    def task_ids(self) -> list[str]:
        """Of the tasks that it becomes, in the order of the lines."""
        return [f"{self.name}:{line}" for line in range(1, len(self._lines) + 1) if line != self.bad_line]


class Ledgers:
    """The ledgers of one world.

    Args:
        random: a separate source, so that a world without ledgers is the same as before.
        in_line: the workflow of lines that have a key; empty: no line has one.
    """

    def __init__(
        self, world: "World", random: Random, calls: tuple[Callable[..., Any], ...], in_line: tuple[Any, ...]
    ) -> None:
        self._world = world
        self._random = random
        self._plans = [Plan(name, random, calls, in_line) for name in NAMES]
        self._violations: list[Violation] = []

    async def live(self, seconds: float) -> None:
        """Submit the ledgers; their submitters die, and now and then a caller discards one that is not opened."""
        submitters = [
            self._world.spawn(self._keep_submitting(plan, seconds), 0)[0]
            for plan in self._plans
            for _ in range(2 if plan.is_twice else 1)
        ]
        while self._world.loop.time() < seconds:
            await asyncio.sleep(self._random.uniform(0.2, 1))
            rows = self._world.store.ledgers.values()
            begun = [row.ledger_id for row in rows if row.ledger_id in NAMES and not row.is_open]
            if begun and self._world.faults.strikes("ledger_discarded", self._random):
                await self._discard(self._random.choice(begun))
        await asyncio.gather(*submitters)
        for plan in self._plans:
            if not plan.acknowledged:
                await self._discard(plan.name)

    async def _keep_submitting(self, plan: Plan, seconds: float) -> None:
        """Start one submitter after the other until there is an answer, or, if nobody cares, until one died."""
        await asyncio.sleep(plan.begins_after + self._random.uniform(0, 0.1))
        while True:
            process, answered = self._world.begin_process(), asyncio.Event()
            self._world.spawn(self._submit(plan, answered), process)
            if self._world.faults.strikes("submitter_crash", self._random):
                with suppress(TimeoutError):
                    await asyncio.wait_for(answered.wait(), self._random.uniform(0, SUBMITS_SECONDS))
                self._world.loop.crash(process)
            elif self._world.faults.strikes("submitter_freeze", self._random):
                await asyncio.sleep(self._random.uniform(0, SUBMITS_SECONDS))
                self._world.loop.freeze(process)
                self._world.loop.call_later(self._random.uniform(0.5, 8), self._world.loop.wake, process)
                await answered.wait()
            else:
                await answered.wait()
            if answered.is_set() or not (plan.is_kept_up or self._random.random() < 0.3):
                return
            await asyncio.sleep(self._random.uniform(0.1, AGAIN_SECONDS_MAX))

    async def _submit(self, plan: Plan, answered: asyncio.Event) -> None:
        """What one process does: submit until there is an answer, wait until all have ended, and notify nobody."""
        session = self._open_session()
        while not await self._submit_once(plan, session):
            await session.ports.clock.sleep(0.3)
        answered.set()
        if not plan.acknowledged:
            return
        await self._wait_for_all(plan, session)
        with suppress(StoreError):
            await self._submit_other(plan, session)

    def _open_session(self) -> Session:
        session = copy.copy(self._world.app.session)
        session.ports = self._world.client_ports()
        session._store = self._world.build_store(None)  # type: ignore[assignment]  # its methods are set in a loop
        return session

    async def _submit_once(self, plan: Plan, session: Session) -> bool:
        submission = LedgerSubmission(
            session, plan.name, bad="set_aside" if plan.sets_aside else "refuse", batch=plan.batch
        )
        try:
            await submission.run(plan.entries())
        except StoreError:
            return False
        except InvalidInput as error:
            if "discarded meanwhile" in str(error):
                return False
            if not plan.is_refused and not isinstance(error, WorkflowPaused):
                self._violations.append(Violation("ledger", plan.name, f"it was refused: {error}"))
            return True
        if plan.is_refused:
            self._violations.append(Violation("ledger", plan.name, "it was accepted with a bad line"))
        plan.acknowledged = True
        self._world.acknowledged.update(self._list_expected(plan))
        return True

    def _list_expected(self, plan: Plan) -> list[str]:
        """The tasks that it becomes. A line whose workflow refuses new tasks, because an operator has paused it, is set aside."""
        ledgers = self._world.store.ledgers.values()
        number = next((row.ledger_no for row in ledgers if row.ledger_id == plan.name), None)
        aside = {line for of, line in self._world.store.aside if of == number}
        return [task_id for task_id in plan.task_ids if int(task_id.rpartition(":")[2]) not in aside]

    async def _submit_other(self, plan: Plan, session: Session) -> None:
        """Another content under the same id must be refused."""
        try:
            await LedgerSubmission(session, plan.name, bad="set_aside", batch=plan.batch).run(
                plan.entries(changed=True)
            )
        except InvalidInput:
            return
        self._violations.append(Violation("ledger", plan.name, "another content was accepted under its id"))

    async def _wait_for_all(self, plan: Plan, session: Session) -> None:
        store, ports = session.store, session.ports
        waiting = ResultWaiters(lambda: store, lambda: ports, lambda _: False)
        while True:
            try:
                has_ended = await wait_for_ledger(store, waiting, ports.clock, plan.name, None)
                break
            except StoreError:
                await ports.clock.sleep(0.3)
            except UnknownName:
                self._violations.append(Violation("ledger", plan.name, "it was acknowledged, and is not known"))
                return
        ended = {row.task_id for row in self._world.store.log if _has(row, TaskTerminal)} | self._world.people.purged
        if not has_ended:
            self._violations.append(Violation("ledger", plan.name, "nobody can tell whether its tasks have ended"))
        self._violations += [
            Violation("ledger", task_id, "the wait for its ledger was over before it had ended")
            for task_id in self._list_expected(plan)
            if task_id not in ended
        ]

    async def _discard(self, name: str) -> None:
        store: Any = self._world.build_store(None)
        while True:
            try:
                ledger = await store.find_ledger(name)
                if ledger is not None and not ledger.is_open:
                    await asyncio.sleep(self._random.uniform(0, THINKS_SECONDS_MAX))
                    await discard_ledger(store, ledger, "ana", "it is of last year")
                return
            except StoreError:
                await asyncio.sleep(0.3)

    # --- checking
    def check(self, rows: list[HistoryRow]) -> Iterator[Violation]:
        """When everything has ended: each ledger is there as a whole, or nothing of it; in the order of its lines."""
        yield from self._violations
        every = [*rows, *self._world.purged_rows]
        submitted = {row.task_id for row in every if row.task_no > 0 and _has(row, TaskSubmitted)}
        opened = [
            event.ledger
            for row in rows
            if row.task_no == 0
            for event in read_events(row.events)
            if isinstance(event, LedgerOpenedEvent)
        ]
        for plan in self._plans:
            there = [task_id for task_id in plan.task_ids if task_id in submitted]
            if opened.count(plan.name) > 1:
                yield Violation("ledger", plan.name, "it was opened twice")
            expected = self._list_expected(plan)
            if plan.name in opened and there != expected:
                yield Violation("ledger", plan.name, f"it was opened, and of {expected} only {there} came of it")
            if plan.name not in opened and there:
                yield Violation("ledger", plan.name, f"it was not opened, and {there} came of it")
            if plan.acknowledged and plan.name not in opened:
                yield Violation("ledger", plan.name, "it was acknowledged, and never opened")
            yield from self._find_disorder(plan, every)
        yield from (
            Violation("ledger", ledger.ledger_id, f"it is {ledger.state} when everything has ended")
            for ledger in self._world.store.ledgers.values()
            if ledger.ledger_id in NAMES and ledger.state is not LedgerState.DONE
        )

    def _find_disorder(self, plan: Plan, rows: list[HistoryRow]) -> Iterator[Violation]:
        """Lines of one key get their places in the order of the lines."""
        places = {
            row.task_id: event.place
            for row in rows
            if row.task_id in plan.task_ids
            for event in read_events(row.events)
            if isinstance(event, ConvoyPlaced)
        }
        in_lines = [places[task_id] for task_id in plan.task_ids if task_id in places]
        if in_lines != sorted(in_lines):
            yield Violation("ledger", plan.name, f"its lines have the places {in_lines} in their convoy")


def _has(row: HistoryRow, kind: type) -> bool:
    return any(isinstance(event, kind) for event in read_events(row.events))


def draw_ledgers(
    world: "World", seed: int, *, may_have: bool, calls: tuple[Callable[..., Any], ...], in_line: tuple[Any, ...]
) -> Ledgers | None:
    """Draw whether a world has ledgers. A source of its own leaves the other worlds as they were."""
    random = Random(f"ledgers-{seed}")
    if random.random() >= SHARE or not may_have:
        return None
    world.faults.add_ledgers(random)
    return Ledgers(world, random, calls, in_line)
