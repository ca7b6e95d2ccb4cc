"""Hosts the Agents of one process: opens their resources, runs their attempts, and puts their parts together.

``hosted_agent`` has the places of each Agent, ``request_taker`` takes requests from the store.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from msgspec.structs import replace

from ..core.lease import PROBATION_FROM
from ..declare.providers import Groups
from ..declare.resources import ResourcePool
from ..declare.steps import Agent
from ..model import StepKind, StepRow, StepState, TaskRow, seconds_between
from ..model.answers import Dispatch
from ..model.moves import NewStep, Reported
from ..model.processes import ProcessRow
from .agent_router import AgentRouter
from .attempt_run import AttemptParts, AttemptRun
from .attempt_time import AttemptRegistry
from .breakers import AgentBreakers
from .call_monitor import AgentMetricsWriter, CallCounter
from .callbacks import warn_of_missing_url
from .hosted_agent import HostedAgent, count_leaked
from .probes import Probing
from .process_context import ProcessContext
from .remote_dispatcher import RemoteDispatcher
from .report_verdicts import UNSENT, AttemptIdentity, ReportVerdicts
from .request_taker import RequestTaker
from .shutdown import CANCELLED_SECONDS_MAX


class AgentHost:
    """The Agents of one process. ``connect`` is called before anything is taken.

    Args:
        groups: Agents of the App that serve the same calls.
        others: the other processes, as of the last renewal.
    """

    def __init__(
        self,
        agents: Iterable[Agent],
        context: ProcessContext,
        groups: Groups | None = None,
        others: Callable[[], Sequence[ProcessRow]] = tuple,
    ) -> None:
        self.context = context
        self.hosted: dict[str, HostedAgent] = {}
        self.in_flight: dict[tuple[int, int], asyncio.Task[None]] = {}
        self.registry = AttemptRegistry()
        self.verdicts = ReportVerdicts()
        self._resources = ResourcePool()
        self._runs: dict[asyncio.Task[None], AttemptRun] = {}  # that have not ended, also those that were dropped
        self._in_threads: set[AttemptRun] = set()  # whose function has not ended, also after their own end
        self._probation: Counter[int] = Counter()  # attempts here of tasks on probation
        self._counter = CallCounter(context.app, context.process_no)
        self.metrics = AgentMetricsWriter(context.store, context.clock, self._counter)
        self.router = AgentRouter(context, self.hosted, groups or {}, others)
        given = tuple(agents)
        self._siblings = self.router.list_siblings(agent.name for agent in given)
        self.taker = RequestTaker(
            context,
            self.hosted,
            siblings=self._siblings,
            find_suspect=lambda: next(iter(self._probation), None),
            on_taken=self._begin_taken,
            on_answered=self._process_take_answered,
        )
        for agent in given:
            self.hosted[agent.name] = HostedAgent(
                agent,
                context,
                self._counter,
                take_soon=self.taker.take_soon,
                take_in_next_turn=self.taker.take_in_next_turn,
            )
        self._names = tuple(self.hosted)
        self._elsewhere: dict[str, AgentBreakers] = {}  # of Agents that others host, and whose reports come here
        self.remote = RemoteDispatcher(context, self.hosted, self.verdicts, self.taker)
        self._probes = [
            Probing(one, one.agent.declared_probe, context, self._resources)
            for one in self.hosted.values()
            if one.agent.declared_probe is not None
        ]
        self._parts: AttemptParts
        self._note_taken: Callable[[StepRow], None]

    def connect(
        self,
        *,
        report: Callable[[StepRow, Reported], None],
        report_late: Callable[[Reported], None],
        note_taken: Callable[[StepRow], None],
    ) -> None:
        """Connect what drives the tasks: it gets the reports of attempts, and the rows of requests taken from the store."""
        self._parts = AttemptParts(
            self.context, self.registry, self._resources, self.remote, report, report_late, self._in_threads
        )
        self._note_taken = note_taken

    # --- life
    async def start(self) -> None:
        """Open the Agents' resources."""
        warn_of_missing_url(self.context, [hosted.agent for hosted in self.hosted.values()])
        if self.context.substitutes is None:
            for hosted in self.hosted.values():
                await self._resources.open(hosted.agent.resources)

    async def wait_until_drained(self) -> None:
        """Wait for the running attempts; each ends by its ``complete_by``, or is left behind a little later."""
        while waited := self._list_unfinished():
            await asyncio.wait(waited)

    def _list_unfinished(self) -> dict[asyncio.Future[None], AttemptRun]:
        return {run.wait_until_over(): run for run in self._runs.values() if not run.is_over}

    def is_busy(self) -> bool:
        """Returns True if an attempt is running, or may still begin because a Take was not answered yet."""
        return bool(self.taker.asked) or any(not run.is_over for run in self._runs.values())

    def look(self) -> None:
        """Begin the probes that are due, and write what is due of the log."""
        for probing in self._probes:
            probing.look()
        for hosted in self.hosted.values():
            hosted.flush_log()

    def stop_taking(self) -> None:
        """Begin to drain: no place is given to new work any longer."""
        self.taker.drain()
        for hosted in self.hosted.values():
            hosted.is_taking = False

    def drain(self) -> None:
        """Begin no attempt any longer, and give back what nobody has begun."""
        self.stop_taking()
        self.remote.drain()

    def abandon(self) -> None:
        """Cancel every attempt without a report."""
        self.stop_taking()
        self.remote.abandon()
        self.verdicts.give_up()
        self._abandon_probes()
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
        return any(run.is_in_time() for run in (*self._runs.values(), *self._in_threads))

    async def close(self) -> None:
        """Close the resources."""
        self._abandon_probes()
        await self._resources.close()

    def _abandon_probes(self) -> None:
        for probing in self._probes:
            probing.abandon()

    # --- places
    def place(self, requests: Sequence[NewStep], priority: int) -> tuple[NewStep, ...]:
        """Take places for new requests. Those without a local place wait in the store for any process."""
        placed: list[NewStep] = []
        groups = self.router.groups
        for asked in requests:
            new = self.router.route(asked, priority) if asked.agent in groups else asked
            hosted = None if new.kind is StepKind.TIMER else self.hosted.get(new.agent)
            takes = hosted is not None and hosted.reserve(new.name, priority, new.target)
            placed.append(replace(new, take=True) if takes else new)
        return tuple(placed)

    def reserve(self, step: StepRow, priority: int) -> bool:
        """Take a place for a request. Returns False if the request must wait in the store."""
        hosted = self.hosted.get(step.agent)
        return hosted is not None and hosted.reserve(step.name, priority, step.target)

    def give_back(self, agents: Iterable[str], priority: int) -> None:
        """Free places that were reserved for requests that do not begin."""
        for agent in agents:
            self.hosted[agent].give_back(priority)

    def give_back_unused(self, reserved: Sequence[str], dispatches: Sequence[Dispatch], priority: int) -> None:
        """Free those of the reserved places for which no attempt began. Their requests wait in the store."""
        unused = Counter(reserved) - Counter(dispatch.step.agent for dispatch in dispatches)
        self.give_back(unused.elements(), priority)
        for agent in unused:
            self.note_waiting(agent)

    def note_waiting(self, agent: str) -> None:
        """Note that a request for an Agent waits in the store: a Take that was sent before may have missed it."""
        if (hosted := self.hosted.get(agent)) is not None:
            hosted.note_waiting()

    def note_due(self) -> None:
        """Note that requests are due in the store, for any Agent."""
        for hosted in self.hosted.values():
            hosted.has_backlog = True
        self.taker.take_soon()

    def list_watched(self) -> tuple[str, ...]:
        """List the Agents for whose requests the store is to be asked now: those here, and at times those whose they may take."""
        return self.router.add_siblings(self._names) if self._siblings else self._names

    def find_breakers(self, agent: Agent) -> AgentBreakers:
        """Find the breakers of an Agent, also of one that only other processes host."""
        if (hosted := self.hosted.get(agent.name)) is not None:
            return hosted.breakers
        if agent.name not in self._elsewhere:
            self._elsewhere[agent.name] = AgentBreakers(agent, self.context, self._counter)
        return self._elsewhere[agent.name]

    def count_leaked_places(self) -> int:
        """Count places in use that belong to no attempt and to no Take running; 0 once nothing is in transit."""
        runs = [self._runs[task] for task in self.in_flight.values() if not task.done()]
        priorities = [run.dispatch.step.priority for run in runs if run.has_place]
        return count_leaked(tuple(self.hosted.values()), priorities, [room for _, room in self.taker.asked])

    # --- attempts
    def _begin_taken(self, dispatch: Dispatch) -> None:
        self._note_taken(dispatch.step)
        self.remote.note_taken(dispatch.step)
        self.dispatch(dispatch, reserved=True)

    def _process_take_answered(self) -> None:
        self.remote.note_take_answered()

    def adopt(self, step: StepRow, task: TaskRow) -> None:
        """Begin an attempt that the store assigned to this process in an answer that was lost."""
        if step.state is StepState.RUNNING and step.locked_by == self.context.process_no:
            left_at = self.context.clock.monotonic()
            now, trace_context = self.context.store.now(), task.trace_context
            dispatch = Dispatch(step, task.task_id, now, task.lost_count, trace_context, task.tags)
            self.dispatch(dispatch, reserved=False, left_at=left_at)

    def dispatch(self, dispatch: Dispatch, *, reserved: bool, left_at: float | None = None) -> None:
        """Begin an attempt that the store has recorded as ours.

        ``left_at``: monotonic time before the store's clock was read for it; None: as for what is being answered now.
        """
        step, context = dispatch.step, self.context
        identity, hosted = (step.step_no, step.fence), self.hosted[step.agent]
        assert step.complete_by is not None
        if not self.registry.begin(identity, step.complete_by, dispatch.now):
            if reserved:
                hosted.give_back(step.priority)
            return
        if not reserved:
            hosted.use(step.priority)
        if dispatch.lost_count >= PROBATION_FROM:
            self._probation[step.task_no] += 1
        left_at = context.committer.left_at if left_at is None else left_at
        deadline = left_at + seconds_between(dispatch.now, step.complete_by)
        run = AttemptRun(self._parts, hosted, dispatch, deadline)
        loop, name = asyncio.get_running_loop(), f"arriero-{run.label}"
        traced = None if context.tracer is None else context.tracer.begin_attempt(dispatch)
        task = loop.create_task(run.run(), name=name, context=traced)
        self.in_flight[identity] = task
        self._runs[task] = run
        # By the task itself: it may be cancelled before its first line, or end before this one.
        task.add_done_callback(partial(self._process_attempt_end, run, dispatch))

    def _process_attempt_end(self, run: AttemptRun, dispatch: Dispatch, task: asyncio.Task[None]) -> None:
        step = dispatch.step
        del self._runs[task]
        if self.hosted[step.agent].is_pulled:
            self.remote.note_begun(step)
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
