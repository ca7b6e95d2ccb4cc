"""Hosts the Agents of one process: opens their resources, runs their attempts, and puts their other parts together.

``agent_places`` has the places of the Agents, ``request_taker`` takes requests from the store.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ..answers import Answer, AttemptApplied, Dispatch, TryDelayed
from ..commands import AnyCommand, BeginTry, NewStep
from ..core.lease import PROBATION_FROM
from ..declare.providers import Groups
from ..declare.resources import Resource
from ..declare.steps import Agent
from ..model import StepKind, StepRow, StepState, TaskRow, seconds_between
from ..processes import ProcessRow
from ..store.committer import Committer
from ..store.contract import StateStore
from .adaptive_places import AdaptivePlaces
from .agent_metrics import AgentMetricsWriter
from .agent_places import AgentPlaces
from .agent_router import AgentRouter
from .attempt_registry import AttemptRegistry
from .attempt_run import AttemptRun, ReportRecorder, SubstituteFinder
from .breakers import Breakers
from .call_monitor import CallCounter
from .limited_agents import LimitedAgents
from .ports import Ports
from .probes import Probes
from .remote_dispatcher import RemoteDispatcher
from .report_verdicts import UNSENT, AttemptIdentity, ReportVerdicts
from .request_taker import RequestTaker
from .retry_budgets import RetryBudgets
from .settings import Settings
from .shutdown import CANCELLED_SECONDS_MAX

if TYPE_CHECKING:  # only who traces tasks pays for loading it
    from ..tracing.tracer import TaskTracer

TRY_SECONDS = 0.01  # the shortest wait for a rate


class AgentHost:
    """The Agents of one process.

    Args:
        is_trusted: returns True if this process may still trust its lease.
        find_substitute: for tests; with it resources are opened at the first call of a step's own function.
        groups: Agents of the App that serve the same calls.
        others: the other processes, as of the last renewal.
        tracer: traces the attempts; None: nobody does.
    ``recorder`` is set before anything is taken: it is told of reports, and of requests taken from the store.
    """

    def __init__(
        self,
        agents: Iterable[Agent],
        *,
        store: StateStore,
        committer: Committer[AnyCommand, Answer],
        ports: Ports,
        settings: Settings,
        actor: str,
        process_no: int,
        is_trusted: Callable[[], bool],
        find_substitute: SubstituteFinder | None = None,
        app: str = "",
        groups: Groups | None = None,
        others: Callable[[], Sequence[ProcessRow]] = tuple,
        tracer: "TaskTracer | None" = None,
    ) -> None:
        self.tracer = tracer
        self.app = app
        self.agents: Mapping[str, Agent] = {agent.name: agent for agent in agents}
        self._names = tuple(self.agents)
        self.store = store
        self._committer = committer
        self.ports = ports
        self.actor = actor
        self.process_no = process_no
        self.recorder: ReportRecorder
        self.is_trusted = is_trusted
        self.find_substitute = find_substitute
        self.resources: dict[Resource[Any], Any] = {}
        self._exits = AsyncExitStack()
        self.in_flight: dict[tuple[int, int], asyncio.Task[None]] = {}
        self.registry = AttemptRegistry()
        self._runs: dict[asyncio.Task[None], AttemptRun] = {}  # that have not ended, also those that were dropped
        self.in_threads: set[AttemptRun] = set()  # whose function has not ended, also after their own end
        self._probation: Counter[int] = Counter()  # attempts here of tasks on probation
        hosted, clock = self.agents.values(), ports.clock
        counter = CallCounter(app, process_no)
        self.metrics = AgentMetricsWriter(store, clock, counter)
        self.breakers = Breakers(committer, store, clock, actor, counter)
        self.probes = Probes(self, app)
        self.adaptive = AdaptivePlaces(hosted, clock.monotonic)
        self.limits = LimitedAgents(hosted, clock, self._take_soon)
        self.verdicts = ReportVerdicts()
        self.remote = RemoteDispatcher(self)
        self.places = AgentPlaces(
            self.agents,
            app=app,
            adaptive=self.adaptive,
            breakers=self.breakers,
            limits=self.limits,
            is_trusted=is_trusted,
            take_soon=self._take_soon,
            # A test calls a function in place of a program, so nobody asks for its requests.
            demand=None if find_substitute else self.remote,
        )
        self.retries = RetryBudgets(hosted, clock, self.places)
        self.router = AgentRouter(
            self.places, groups or {}, app, others=others, now=store.now, monotonic=clock.monotonic
        )
        self._siblings = self.router.list_siblings(self.agents)
        self.taker = self._build_taker(committer, settings.batch_max)

    def _build_taker(self, committer: Committer[AnyCommand, Answer], batch_max: int) -> RequestTaker:
        return RequestTaker(
            self.places,
            committer=committer,
            actor=self.actor,
            process_no=self.process_no,
            app=self.app,
            batch_max=batch_max,
            retries=self.retries,
            siblings=self._siblings,
            is_trusted=self.is_trusted,
            find_suspect=lambda: next(iter(self._probation), None),
            on_taken=self._begin_taken,
            on_answered=self.remote.takes.note_take_answered,
        )

    def _take_soon(self) -> None:
        self.taker.take_soon()  # which is made after the parts that call it

    # --- life
    async def start(self) -> None:
        """Open the Agents' resources."""
        if self.find_substitute is None:
            for agent in self.agents.values():
                await self.open_resources(agent)

    async def open_resources(self, agent: Agent) -> None:
        """Open the resources of one Agent that are not open yet."""
        for resource in agent.resources:
            if resource in self.resources:
                continue
            context = resource.opened()
            if isinstance(context, AbstractAsyncContextManager):
                self.resources[resource] = await self._exits.enter_async_context(context)
            else:
                self.resources[resource] = self._exits.enter_context(context)

    async def wait_until_drained(self) -> None:
        """Wait for the attempts under way; each ends by its ``complete_by``, or is left behind a little later."""
        while waited := self._list_unfinished():
            await asyncio.wait(waited)

    def _list_unfinished(self) -> dict[asyncio.Future[None], AttemptRun]:
        return {run.wait_until_over(): run for run in self._runs.values() if not run.is_over}

    def is_busy(self) -> bool:
        """Returns True if an attempt is under way, or may still begin because a Take was not answered yet."""
        return bool(self.taker.asked) or any(not run.is_over for run in self._runs.values())

    def drain(self) -> None:
        """Begin no attempt any more, and give back what nobody has begun."""
        self.places.stop_taking()
        self.remote.drain()

    def abandon(self) -> None:
        """Cancel every attempt without a report."""
        self.places.stop_taking()
        self.remote.abandon()
        self.verdicts.give_up()
        self.probes.abandon()
        for task in self._runs:
            task.cancel()
        self.in_flight.clear()

    async def wait_until_dropped(self) -> None:
        """Wait until abandoned attempts have ended. One that swallows its cancellation is left behind."""
        if waited := self._list_unfinished():
            _, left = await asyncio.wait(waited, timeout=CANCELLED_SECONDS_MAX)
            for over in left:
                waited[over].leave_behind()

    def may_still_act(self) -> bool:
        """Returns True if an attempt still runs before its deadline: it swallows its cancellation, or runs in a thread."""
        return any(run.is_in_time() for run in (*self._runs.values(), *self.in_threads))

    async def close(self) -> None:
        """Close the resources."""
        self.probes.abandon()
        await self._exits.aclose()

    # --- places
    def place(self, requests: Sequence[NewStep], priority: int) -> tuple[NewStep, ...]:
        """Take places for new requests. Those without a local place wait in the store for any process."""
        placed: list[NewStep] = []
        groups = self.router.groups
        for asked in requests:
            new = self.router.route(asked, priority) if asked.agent in groups else asked
            takes = new.kind is not StepKind.TIMER and self.places.reserve(new.agent, priority, new.target)
            placed.append(replace(new, take=True) if takes else new)
        return tuple(placed)

    def list_watched(self) -> tuple[str, ...]:
        """List the Agents for whose requests the store is to be asked now: those here, and at times those whose they may take."""
        return self.router.add_siblings(self._names) if self._siblings else self._names

    def note_call(self, agent: Agent, end: str, seconds: float) -> None:
        """Note a call that has ended, of an Agent with adaptive concurrency; ``end`` as of ``EndedCall``."""
        kept = sum(asked.places for asked in self.taker.asked if asked.agent == agent.name)  # no call is made there yet
        self.adaptive.note_call(agent, end, seconds, self.places.used[agent.name] - kept)

    def count_leaked_places(self) -> int:
        """Count places in use that belong to no attempt and to no Take under way; 0 once nothing is on its way."""
        runs = [self._runs[task] for task in self.in_flight.values() if not task.done()]
        return self.places.count_leaked([run.dispatch.step.priority for run in runs if run.has_place], self.taker.asked)

    # --- attempts
    async def begin_try(self, step: StepRow, *, in_doubt: bool) -> float | None:
        """Ask whether an attempt may make another call now.

        The store is asked if calls are counted. It is also asked if a program may report by way of a process with the role
        ``http``: the step may be completed meanwhile, and perhaps undone; and that process must find in the row that a call
        before may have happened (``in_doubt``). Where only this process can report, its death or silence leaves the doubt.

        Returns: 0 - it may; else the seconds after which to ask again; None: the attempt is over.
        Raises: StoreError - nobody knows.
        """
        if not self.limits.has_rate(step.agent) and not self.agents[step.agent].pushes:
            return 0.0
        answer, _ = await self.ask(
            BeginTry(
                actor=self.actor,
                process_no=self.process_no,
                step_no=step.step_no,
                fence=step.fence,
                app=self.app,
                agent=step.agent,
                in_doubt=in_doubt,
            )
        )
        if isinstance(answer, TryDelayed):
            return max(answer.seconds, TRY_SECONDS)
        return 0.0 if isinstance(answer, AttemptApplied) else None

    async def ask(self, command: AnyCommand, *, directly: bool = False) -> tuple[Answer, float]:
        """Commit a command of an attempt; see ``AttemptHost``."""
        left_at = self.ports.clock.monotonic()
        if directly:
            (answer,) = await self.store.apply([command])
            if isinstance(answer, BaseException):
                raise answer
            return answer, left_at

        def note_time(_: Answer | BaseException) -> None:
            nonlocal left_at
            left_at = self._committer.left_at  # of the commit that is answered: others may have failed before it

        return await self._committer.ask(command, note_time), left_at

    def _begin_taken(self, dispatch: Dispatch) -> None:
        self.recorder.note_taken(dispatch.step)
        self.remote.takes.note_taken(dispatch.step)
        self.dispatch(dispatch, reserved=True)

    def adopt(self, step: StepRow, task: TaskRow) -> None:
        """Begin an attempt that the store assigned to this process in an answer that was lost."""
        if step.state is StepState.RUNNING and step.locked_by == self.process_no:
            left_at = self.ports.clock.monotonic()
            dispatch = Dispatch(step, task.task_id, self.store.now(), task.lost_count, task.trace_context)
            self.dispatch(dispatch, reserved=False, left_at=left_at)

    def dispatch(self, dispatch: Dispatch, *, reserved: bool, left_at: float | None = None) -> None:
        """Begin an attempt that the store has recorded as ours.

        ``left_at``: monotonic time before the store's clock was read for it; None: as for what is being answered now.
        """
        step = dispatch.step
        identity = (step.step_no, step.fence)
        assert step.complete_by is not None
        if not self.registry.begin(identity, step.complete_by, dispatch.now):
            if reserved:
                self.places.give_back(step.agent, step.priority)
            return
        if not reserved:
            self.places.use(step.agent, step.priority)
        if dispatch.lost_count >= PROBATION_FROM:
            self._probation[step.task_no] += 1
        left_at = self._committer.left_at if left_at is None else left_at
        deadline = left_at + seconds_between(dispatch.now, step.complete_by)
        run = AttemptRun(self, dispatch, deadline)
        loop, name = asyncio.get_running_loop(), f"arriero-{run.label}"
        if self.tracer is None:
            task = loop.create_task(run.run(), name=name)
        else:
            task = loop.create_task(run.run(), name=name, context=self.tracer.begin_attempt(dispatch))
        self.in_flight[identity] = task
        self._runs[task] = run
        # By the task itself: it may be cancelled before its first line, or end before this one.
        task.add_done_callback(partial(self._process_attempt_end, run, dispatch))

    def _process_attempt_end(self, run: AttemptRun, dispatch: Dispatch, task: asyncio.Task[None]) -> None:
        step = dispatch.step
        del self._runs[task]
        self.remote.takes.note_begun(step)
        if not run.has_reported:
            self.verdicts.tell((step.step_no, step.fence), UNSENT)
        run.end()
        self.in_flight.pop((step.step_no, step.fence), None)
        if dispatch.lost_count >= PROBATION_FROM:
            self._probation[step.task_no] -= 1
            self._probation += Counter()

    def settle_report(self, identity: AttemptIdentity, verdict: str) -> None:
        """Note what the store has answered to the report of an attempt."""
        self.registry.settle(identity)
        self.verdicts.tell(identity, verdict)

    def find_attempt(self, task: "asyncio.Task[Any] | None") -> tuple[StepRow, str] | None:
        """The step whose attempt runs as this asyncio task, and the id of its task; None if there is none."""
        run = None if task is None else self._runs.get(task)
        return None if run is None else (run.dispatch.step, run.dispatch.task_id)
