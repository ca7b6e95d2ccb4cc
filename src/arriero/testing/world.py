"""An App on the memory store and a virtual clock, with steps that answer as the test says."""

import asyncio
import random
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime
from itertools import count
from typing import Any, ParamSpec, TypeVar

import msgspec

from ..client.app import App
from ..client.assembly import run_node
from ..client.task_view import waiting_for
from ..config import Configuration
from ..core.breaker import compute_next_look
from ..core.supervision import decode_step_policy
from ..declare.attempt import Attempt
from ..declare.steps import Agent, Step
from ..errors import ArrieroError, InvalidInput, Permanent
from ..model import STEP_OPEN, Instant, StepKind, StepRow, StepState, Verb
from ..model.commands import PERSONS_MAX
from ..model.failures import read_step_failure
from ..model.instants import as_datetime
from ..model.policies import Duration, seconds
from ..runtime.ports import ChildProcess, Look, ProcessClock
from ..runtime.process_context import Substitutes
from ..runtime.settings import ROLES, Settings, check_roles
from ..store.memory import MemoryStore
from .clock import START_SECONDS, VirtualClock
from .handmade import run_inline

ATTEMPTS_MAX = 1_000  # without any step or task that ends; a test of more waits with world.clock.advance


class WorldProgress:
    """Count of the attempts and probes since something ended in a world."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self._ended = -1
        self._attempts_then = 0

    def look(self) -> None:
        """Raise ArrieroError if more attempts than any policy allows were made while nothing ended."""
        steps = [step for of_task in self._store.steps.values() for step in of_task.values()]
        is_open = [step for step in steps if step.state in STEP_OPEN]
        ended = len(steps) - len(is_open) + sum(task.ended_at is not None for task in self._store.tasks.values())
        attempts = sum(step.attempt for step in steps) + sum(row.fence for row in self._store.breaker_rows.values())
        if ended != self._ended:
            self._ended, self._attempts_then = ended, attempts
            return
        allowed = ATTEMPTS_MAX + sum(
            decode_step_policy(step.policy).calls_max for step in is_open if step.kind is not StepKind.TIMER
        )
        made = attempts - self._attempts_then
        if made > allowed:
            self._attempts_then = attempts
            raise ArrieroError(
                f"the world made {made:,} attempts and probes, and nothing ended: {self._describe(is_open)}"
            )

    def _describe(self, steps: list[StepRow]) -> str:
        tried = sorted((step for step in steps if step.kind is not StepKind.TIMER), key=lambda step: -step.attempt)
        named = [
            f"task {self._store.tasks[step.task_no].task_id}, step {step.label}, attempt {step.attempt}{self._find_last_error(step)}"
            for step in tried[:3]
        ]
        open_breakers = sorted(row.label for row in self._store.breaker_rows.values() if row.is_outage)
        if open_breakers:
            named.append(f"the breaker of {', '.join(open_breakers)} is open, so attempts are not charged")
        return "; ".join(named) or "no step is open"

    def _find_last_error(self, step: StepRow) -> str:
        for row in reversed(self._store.log):
            if row.task_no != step.task_no:
                continue
            for event in reversed(msgspec.json.decode(bytes(row.events))):
                if (
                    event.get("type") == "recover.applied"
                    and event.get("step") == step.ordinal
                    and event.get("failure")
                ):
                    failure = read_step_failure(msgspec.json.encode(event["failure"]).decode())
                    return f", last error: {failure.message or failure.code or failure.cause}"
        return ""


P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

START = Instant(1_767_225_600_000_000)  # 2026-01-01, the same in every run
PUBLIC_URL = "https://callbacks.test"  # below which callbacks have their URLs
FOREVER = 1e9  # leases of a world that only one process inhabits
TURNS = 40  # turns of the event loop without any activity after which everybody definitely waits
REAL_SECONDS_MAX = 2.0  # real time given to steps' own functions before the clock continues without them
POKES_MAX = 20


class UndoneStep(msgspec.Struct, frozen=True):
    """A compensation that was carried out. ``key``: the one given to the step, else #1, #2, ... by occurrence."""

    task_id: str
    step: str
    key: str


class Clock:
    """The world's time."""

    def __init__(self, store_now: Callable[[], Instant], advance: Callable[[float], Awaitable[None]]) -> None:
        self._store_now = store_now
        self._advance = advance

    def now(self) -> datetime:
        """The store's clock, in UTC."""
        return as_datetime(self._store_now())

    async def advance(self, by: Duration) -> None:
        """Let so much time pass; whatever is due meanwhile happens at its time."""
        await self._advance(seconds(by, "advance"))


class _Ports:
    def __init__(self, seed: int) -> None:
        self.virtual = VirtualClock()
        self.clock: ProcessClock = self.virtual
        self.random = random.Random(seed)
        self._numbers = count(1)

    def new_instance(self) -> str:
        return f"test-process-{next(self._numbers)}"

    def new_task_id(self) -> str:
        return f"test-task-{next(self._numbers)}"

    async def run_in_thread(
        self, pool: str, size: int, function: Callable[[], Any], on_done: Callable[[], None]
    ) -> Any:
        try:
            return function()
        finally:
            on_done()

    runs_inline = True

    async def start_child(self) -> ChildProcess:
        raise AssertionError("no process is started where functions run inline")

    def wait_in_thread(self, loop: asyncio.AbstractEventLoop, asked: Coroutine[Any, Any, T]) -> T:
        return run_inline(asked)

    def keep(self, renewals: Callable[[], Coroutine[Any, Any, None]]) -> "_NoKeeper":
        return _NoKeeper()

    def watch(self, look: Look, seconds: float) -> None:
        return


class _NoKeeper:
    def is_alive(self) -> bool:
        return True

    async def stop(self) -> None:
        return


def _configure(approvals: Mapping[str, int]) -> Configuration:
    """Build the settings of a world: all defaults but ``[approvals]``. Raises InvalidInput."""
    settings: dict[str, Any] = {}
    for verb, persons in approvals.items():
        if verb not in tuple(Verb):
            raise InvalidInput(f"approvals names {verb!r}; verbs are {', '.join(Verb)}")
        if isinstance(persons, bool) or not isinstance(persons, int) or not 1 <= persons <= PERSONS_MAX:
            raise InvalidInput(f"approvals of {verb} is {persons!r}; it must be a whole number from 1 to {PERSONS_MAX}")
        settings[f"approvals_{verb}"] = persons
    return Configuration(**settings)


class World:
    """World of a test, given by ``testing.running``."""

    def __init__(self, app: App, seed: int, approvals: Mapping[str, int] | None = None) -> None:
        self._ports = _Ports(seed)
        self._virtual = self._ports.virtual
        self._store = MemoryStore(self._store_now, store_id="test-store")
        self.app = App(app.name, agents=app.agents, workflows=app.workflows)
        self.app.made_at, app.made_at = app.made_at, None  # one of the two warns of missing compensations
        self.app.session.schedules.update(app.session.schedules)
        # No file and no variable of the developer's machine.
        self._configuration = self.app.session.configuration = _configure(approvals or {})
        self.app.session.ports = self._ports
        self.app.session.settings = Settings(
            lease_seconds=FOREVER,
            leader_seconds=FOREVER,
            progress_seconds=FOREVER,
            hang_seconds=FOREVER,
            approvals_cancel=self._configuration.approvals_cancel,
            public_url=PUBLIC_URL,
        )
        self.app.session.substitutes = Substitutes(self._find_substitute, self._find_probe)
        self.clock = Clock(self._store.now, self._advance)
        self._answers: dict[Step[..., Any], deque[Any]] = {}
        self._replaced: dict[Step[..., Any], Callable[..., Any]] = {}
        self._calls: defaultdict[Step[..., Any], list[Mapping[str, Any]]] = defaultdict(list)
        self._probes: dict[Agent, Callable[..., Any]] = {}
        self._refusal: str | None = None  # of a real probe that would have been called
        self._progress = WorldProgress(self._store)
        self._advancing = False
        self._waited_enough_for: set[tuple[int, int]] = set()

    def _store_now(self) -> Instant:
        return Instant(START + round((self._virtual.monotonic() - START_SECONDS) * 1_000_000))

    async def __aenter__(self) -> "World":
        async with AsyncExitStack() as stack:
            session = self.app.session
            run = run_node(session, self._store, check_roles(ROLES), session.agents, self._configuration, drain=False)
            await stack.enter_async_context(run)
            driver = asyncio.get_running_loop().create_task(self._drive(), name="arriero-test-clock")
            stack.push_async_callback(self._end_driver, driver)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *exc: Any) -> None:
        await self._stack.__aexit__(*exc)

    @staticmethod
    async def _end_driver(driver: "asyncio.Task[None]") -> None:
        driver.cancel()
        await asyncio.gather(driver, return_exceptions=True)

    # --- what the test says and asks
    def replace(self, step: Step[P, R], by: Callable[P, Awaitable[R] | R]) -> None:
        """Call this instead of the step's function, with the step's arguments. Its compensation does nothing then."""
        self._replaced[step] = by

    def answers(self, step: Step[..., R], *answers: R | Exception) -> None:
        """Set the answers of the step's next calls, one a try: a value is returned, an exception raised.

        Its compensation does nothing then. A call beyond the last answer fails permanently and says so. What is said of a step
        holds for the Agents that provide it, too.
        """
        self._answers.setdefault(step, deque()).extend(answers)

    def replace_probe(self, agent: Agent, by: Callable[..., Any]) -> None:
        """Call this instead of the Agent's probe: it returns if the service is healthy, and raises if it is not.

        The world never calls a real probe. An outage in which one would be called ends the wait with an error.
        """
        self._probes[agent] = by

    def calls(self, step: Step[..., Any]) -> list[Mapping[str, Any]]:
        """The arguments of every call so far, tries included; of a base's step also the calls that its providers got."""
        return list(self._calls[step])

    def undone(self) -> list[UndoneStep]:
        """Compensations carried out, in order."""
        rows = [s for of_task in self._store.steps.values() for s in of_task.values()]
        done = [s for s in rows if s.kind is StepKind.COMPENSATION and s.state is StepState.COMPLETED]
        done.sort(key=lambda s: (s.finished_at or 0, s.task_no, s.result_number or 0))
        return [UndoneStep(self._store.tasks[s.task_no].task_id, s.name, s.key) for s in done]

    # --- steps
    def _find_substitute(
        self, step: Step[Any, Any], row: StepRow, first: Attempt, arguments: dict[str, Any]
    ) -> Callable[[], Any] | None:
        """Find the function to call instead of the step's or compensation's own; None: its own."""
        of_base = step if step.agent.provides is None else step.agent.provides.steps[step.name]
        if row.kind is not StepKind.COMPENSATION:
            for called in {step, of_base}:
                self._calls[called].append(arguments)
        if step not in self._answers and step not in self._replaced:
            step = (
                of_base  # what is said of the base's step holds for its providers, unless they are notified otherwise
            )
        scripted = step in self._answers or step in self._replaced
        if row.kind is StepKind.COMPENSATION:
            return (lambda: None) if scripted else None
        if step in self._answers:
            return lambda: self._answer(step)
        if step in self._replaced:
            return lambda: self._replaced[step](**arguments)
        return None

    def _find_probe(self, agent: Agent) -> Callable[..., Any]:
        if (found := self._probes.get(agent)) is not None:
            return found
        name = agent.declared_probe.function.__qualname__ if agent.declared_probe else "its probe"
        refusal = self._refusal = (
            f"the breaker of Agent {agent.name} is open, and the world calls no real probe ({name}): say what the probe finds with"
            " world.replace_probe(agent, function)"
        )

        def refuse(*_target: str) -> None:
            raise ArrieroError(refusal)

        return refuse

    def _raise_refusal(self) -> None:
        refusal, self._refusal = self._refusal, None
        if refusal is not None:
            raise ArrieroError(refusal)

    def _answer(self, step: Step[Any, Any]) -> Any:
        left = self._answers[step]
        if not left:
            raise Permanent(
                f"the test gave no more answers for step {step.name}: add them to world.answers", code="no_answer"
            )
        answer = left.popleft()
        if isinstance(answer, Exception):
            raise answer
        return answer

    # --- time
    async def _settle(self) -> None:
        """Run until everybody waits for the clock, or for something outside of this world."""
        loop = asyncio.get_running_loop()
        real_end = loop.time() + REAL_SECONDS_MAX
        still, seen = 0, -1
        while still < TURNS:
            await asyncio.sleep(0)
            still = still + 1 if self._virtual.activity == seen else 0
            seen = self._virtual.activity
            if still >= TURNS and (waiting := self._waiting_for_real()):
                if loop.time() < real_end:
                    await asyncio.sleep(0.001)  # a step's own function waits for something real
                    still = 0
                else:
                    self._waited_enough_for |= waiting

    def _waiting_for_real(self) -> set[tuple[int, int]]:
        """Attempts of steps' own functions running; what they wait for may need real time, each once."""
        node = self.app.session.node
        session = None if node is None else node.session
        if session is None or self._virtual.is_slept_in():
            return set()
        under_way = {attempt for attempt, task in session.agents.in_flight.items() if not task.done()}
        return under_way - self._waited_enough_for

    def _due(self, *, after_now: bool) -> float | None:
        """The next instant, on the virtual clock, at which the store or a timer wants something."""
        now = self._store.now()
        instants: list[Instant | None] = []
        for task in self._store.tasks.values():
            if task.ended_at is None:
                instants += [task.not_before if task.locked_by is None else None, task.complete_by]
        for of_task in self._store.steps.values():
            for step in of_task.values():
                if step.state is StepState.PENDING:
                    instants += [step.not_before, step.wait_by]
                elif step.state is StepState.RUNNING:
                    instants.append(step.complete_by)
        instants += [convoy.look_at for convoy in self._store.convoys.values()]
        instants += [compute_next_look(breaker, now) for breaker in self._store.breaker_rows.values()]
        wanted = [at for at in instants if at is not None and (at > now or not after_now)]
        store_next = None if not wanted else START_SECONDS + (min(wanted) - START) / 1_000_000
        both = [at for at in (store_next, self._virtual.next_timer()) if at is not None]
        return min(both, default=None)

    def _find_next_look(self) -> float | None:
        """The next instant, on the virtual clock, at which a schedule is due."""
        at = self._store.select_next_look(self._store.now())
        return None if at is None else START_SECONDS + (at - START) / 1_000_000

    async def _step(self, limit: float | None) -> bool:
        """One jump, at most to ``limit``; False when nothing would ever happen again."""
        for _ in range(POKES_MAX):
            before = len(self._store.log)
            self._virtual.poke()
            await self._settle()
            if len(self._store.log) == before:
                break  # a pass of every loop changed nothing: what is due nobody here can do
        if limit is None and not self.app.session.waiting.is_awaited():
            return True  # who waited has its answer, and may submit again: the time stays
        due = self._due(after_now=True)
        if limit is not None:  # who waits for a result must hear that the world is blocked, whatever schedules say
            due = min((at for at in (due, self._find_next_look()) if at is not None), default=None)
        if due is None and limit is None:
            return not self.app.session.waiting.is_awaited()
        target = min(at for at in (due, limit) if at is not None)
        self._virtual.jump_to(target + 1e-6)  # past the instant, whatever rounding did to it
        await self._settle()
        return True

    async def _advance(self, by: float) -> None:
        target = self._virtual.monotonic() + by
        self._advancing = True
        try:
            await self._settle()
            while self._virtual.monotonic() < target:
                await self._step(target)
                self._raise_refusal()
        finally:
            self._advancing = False

    async def _drive(self) -> None:
        """While a test waits for a result, let the time jump."""
        waiting = self.app.session.waiting
        while True:
            if not waiting.is_awaited() or self._advancing:
                await asyncio.sleep(0.001)
                continue
            await self._settle()
            try:
                self._raise_refusal()
                self._progress.look()
            except ArrieroError as error:
                waiting.give_up(error)
                await self._settle()
                continue
            if waiting.is_awaited() and not self._advancing and not await self._step(None):
                if any(
                    self._store.tasks[no].ended_at is not None
                    for no in waiting.list_awaited() & self._store.tasks.keys()
                ):
                    continue  # asked for a moment ago; the caller that waits is notified at the next look
                waiting.give_up(ArrieroError(f"the world is blocked: {self._what_waits()}"))

    def _what_waits(self) -> str:
        numbers = [task.task_no for task in self._store.tasks.values() if task.ended_at is None]
        waits = [
            f"task {self._store.tasks[no].task_id} waits for {waiting_for(self._store.load_as_is(no))}"
            for no in numbers
        ]
        return "; ".join(waits) or "no task is open"


@asynccontextmanager
async def running(app: App, *, seed: int = 0, approvals: Mapping[str, int] | None = None) -> AsyncIterator[World]:
    """Run an App's Agents and workflows in a separate world.

    Args:
        app: its store is not touched.
        seed: of all chance (jitter, generated ids).
        approvals: how many operators must ask for a verb, as ``[approvals]`` in the settings: ``{"cancel": 2}``. A world
            reads no settings, so verbs that are not named need one.
    Yields: the World; its ``app`` is to be submitted to.
    Raises: InvalidInput - approvals names no verb, or no number of operators from 1 to 10.
    """
    async with World(app, seed, approvals) as world:
        yield world
