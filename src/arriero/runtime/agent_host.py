"""Hosts the Agents of one process: their places, the requests they take, and the attempts under way."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from ..answers import Answer, AttemptApplied, Dispatch, Taken, TryDelayed
from ..commands import AnyCommand, BeginTry, NewStep, Take
from ..core.lease import PROBATION_FROM
from ..core.reserve import Room, compute_room, is_urgent
from ..declare.providers import Groups
from ..declare.resources import Resource
from ..declare.steps import Agent, Step
from ..model import ProcessRow, StepKind, StepRow, StepState, TaskRow, seconds_between
from ..store.committer import Committer
from ..store.contract import Busy, StateStore, Unwritten
from .adaptive_places import AdaptivePlaces
from .agent_metrics import AgentMetricsWriter
from .agent_router import AgentRouter
from .attempt_registry import AttemptRegistry
from .attempt_run import Around, AttemptRun, Recorder
from .breakers import Breakers
from .call_monitor import CallCounter
from .limited_agents import LimitedAgents
from .ports import Ports
from .probes import Probes
from .retry_budgets import RetryBudgets
from .settings import Settings
from .shutdown import CANCELLED_SECONDS_MAX

TRY_SECONDS = 0.01  # the shortest wait for a rate


class AskedRoom(msgspec.Struct, frozen=True):
    """Places of one Agent that are kept for a Take under way, and that no other work may use meanwhile."""

    agent: str
    room: Room

    @property
    def places(self) -> int:
        """All of them."""
        return self.room.open + self.room.urgent


class AgentHost:
    """The Agents of one process.

    Args:
        is_trusted: returns True if this process may still trust its lease.
        around: for tests; with it resources are opened at the first call of a step's own function.
        groups: Agents of the App that serve the same calls.
        others: the other processes, as of the last renewal.
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
        around: Around | None = None,
        app: str = "",
        groups: Groups | None = None,
        others: Callable[[], Sequence[ProcessRow]] = tuple,
    ) -> None:
        self._app = app
        self.agents: Mapping[str, Agent] = {agent.name: agent for agent in agents}
        self.store = store
        self._committer = committer
        self.ports = ports
        self._settings = settings
        self.actor = actor
        self.process_no = process_no
        self.recorder: Recorder
        self.is_trusted = is_trusted
        self.around = around
        self._used: Counter[str] = Counter()
        self._used_by_others: Counter[str] = Counter()  # of these, by work that is not urgent
        self._backlog: set[str] = set()  # Agents for which requests may wait in the store: those go first
        self._asked_room: tuple[AskedRoom, ...] = ()  # places kept for the Take under way
        self._unsure: tuple[AskedRoom, ...] = ()  # places of Takes whose answer was lost
        self._take_again = False
        self.limits = LimitedAgents(self.agents.values(), ports.clock, self.take_soon)
        self._stopping = False
        self.resources: dict[Resource[Any], Any] = {}
        self._exits = AsyncExitStack()
        self._names = tuple({name for agent in self.agents.values() for name in agent.steps})
        self.in_flight: dict[tuple[int, int], asyncio.Task[None]] = {}
        self.registry = AttemptRegistry()
        self._runs: dict[asyncio.Task[None], AttemptRun] = {}  # that have not ended, also those that were dropped
        self.in_threads: set[AttemptRun] = set()  # whose function has not ended, also after their own end
        self._probation: Counter[int] = Counter()  # attempts here of tasks on probation
        counter = CallCounter(app, process_no)
        self.metrics = AgentMetricsWriter(store, ports.clock, counter)
        self.breakers = Breakers(committer, store, ports.clock, actor, counter)
        self.probes = Probes(self, app)
        self._adaptive = AdaptivePlaces(self.agents.values(), ports.clock.monotonic)
        self.retries = RetryBudgets(self.agents.values(), ports.clock, self.note_waiting)
        self.router = AgentRouter(
            self, groups or {}, app, others=others, now=store.now, monotonic=ports.clock.monotonic
        )
        self._siblings = self.router.list_siblings(self.agents)
        self._names_hosted = tuple(self.agents)

    # --- life
    async def start(self) -> None:
        """Open the Agents' resources."""
        if self.around is None:
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

    def stop_taking(self) -> None:
        """Begin to drain: no request is taken any more."""
        self._stopping = True

    async def wait_until_drained(self) -> None:
        """Wait for the attempts under way; each ends by its ``complete_by``, or is left behind a little later."""
        while waited := self._list_unfinished():
            await asyncio.wait(waited)

    def _list_unfinished(self) -> dict[asyncio.Future[None], AttemptRun]:
        return {run.wait_until_over(): run for run in self._runs.values() if not run.is_over}

    def is_busy(self) -> bool:
        """Returns True if an attempt is under way, or may still begin because a Take was not answered yet."""
        return bool(self._asked_room) or any(not run.is_over for run in self._runs.values())

    def abandon(self) -> None:
        """Cancel every attempt without a report."""
        self._stopping = True
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

    # --- room
    def reserve(self, agent: str, priority: int, target: str = "") -> bool:
        """Take a place of a local Agent for a new request. Returns False if the request must wait in the store."""
        if self.breakers.known and self.breakers.is_barred(self._app, agent, target):
            return False  # it is taken from the store, by whoever the breaker lets through
        if agent in self.limits.names:
            self._backlog.add(agent)
            self.limits.take_with_this_commit()
            return False
        if agent not in self.agents or self._stopping or agent in self._backlog or not self._has_room(agent, priority):
            self._backlog.add(agent)
            return False
        if not self.is_trusted():
            return False
        self._use(agent, priority)
        return True

    @property
    def is_taking(self) -> bool:
        """True until the process drains."""
        return not self._stopping

    def may_reserve(self, agent: str, priority: int) -> bool:
        """Returns True if a local Agent has a place for a new request, and none waits before it."""
        is_ready = agent in self.agents and not self._stopping and agent not in self._backlog
        return is_ready and self._has_room(agent, priority)

    def count_free(self, agent: str) -> int:
        """Count the places of a local Agent that a request of any priority could take."""
        return self._compute_room(agent).open

    def _compute_room(self, agent: str, *, of_retry: bool = False) -> Room:
        """Compute the free places for new work. ``of_retry``: for a retry that waits, which gets its place before that."""
        hosted = self.agents[agent]
        places = self._adaptive.count_places(hosted) if hosted.adaptive else hosted.max_in_flight
        room = compute_room(
            places=places,
            reserved=min(hosted.reserved, places - 1),
            used=self._used[agent],
            used_by_others=self._used_by_others[agent],
        )
        kept = 0 if of_retry else self.retries.ready[agent]
        return Room(max(room.open - kept, 0), room.urgent) if kept else room

    def note_call(self, agent: Agent, end: str, seconds: float) -> None:
        """Note a call that has ended, for adaptive concurrency; ``end`` as of ``EndedCall``."""
        kept = sum(asked.places for asked in self._asked_room if asked.agent == agent.name)  # no call is made there yet
        self._adaptive.note_call(agent, end, seconds, self._used[agent.name] - kept)

    def flush_logs(self) -> None:
        """Write what is due of the rate-limited log; to be called again and again."""
        self._adaptive.flush()

    def _has_room(self, agent: str, priority: int, *, of_retry: bool = False) -> bool:
        room = self._compute_room(agent, of_retry=of_retry)
        return room.open > 0 or (is_urgent(priority) and room.urgent > 0)

    def _use(self, agent: str, priority: int) -> None:
        self._used[agent] += 1
        if not is_urgent(priority):
            self._used_by_others[agent] += 1

    def reserve_for_retry(self, agent: str, priority: int) -> bool:
        """Take a place for a retry that has waited without one. Returns False if none is free."""
        if not self._has_room(agent, priority, of_retry=True):
            return False
        self._use(agent, priority)
        return True

    def place(self, requests: Sequence[NewStep], priority: int) -> tuple[NewStep, ...]:
        """Take places for new requests. Those without a local place wait in the store for any process."""
        placed: list[NewStep] = []
        groups = self.router.groups
        for asked in requests:
            new = self.router.route(asked, priority) if asked.agent in groups else asked
            takes = new.kind is not StepKind.TIMER and self.reserve(new.agent, priority, new.target)
            placed.append(replace(new, take=True) if takes else new)
        return tuple(placed)

    def give_back_all(self, agents: Iterable[str], priority: int) -> None:
        """Free places that were reserved for requests that do not begin."""
        for agent in agents:
            self.give_back(agent, priority)

    def give_back_unused(self, reserved: Sequence[str], dispatches: Sequence[Dispatch], priority: int) -> None:
        """Free those of the reserved places for which no attempt began. Their requests wait in the store."""
        unused = Counter(reserved) - Counter(dispatch.step.agent for dispatch in dispatches)
        self.give_back_all(unused.elements(), priority)
        for agent in unused:
            self.note_waiting(agent)

    def give_back(self, agent: str, priority: int) -> None:
        """Free a place that was reserved, or whose attempt has ended."""
        self._used[agent] -= 1
        if not is_urgent(priority):
            self._used_by_others[agent] -= 1
        if agent in self._backlog:
            if agent in self.limits.names:
                self.limits.take_with_this_commit()
            else:
                self.take_soon()

    def note_waiting(self, agent: str) -> None:
        """Note that a request for an Agent waits in the store: a Take that was sent before may have missed it."""
        if agent in self.agents:
            self._backlog.add(agent)
            self.take_soon()

    def list_watched(self) -> tuple[str, ...]:
        """List the Agents for whose requests the store is to be asked now: those here, and at times those whose they may take."""
        return self.router.add_siblings(self._names_hosted) if self._siblings else self._names_hosted

    def note_due(self) -> None:
        """Note that requests are due in the store, for any Agent."""
        self._backlog.update(self.agents)
        self.take_soon()

    def count_leaked_places(self) -> int:
        """Count places in use that belong to no attempt and to no Take under way; 0 once nothing is on its way."""
        runs = [self._runs[task] for task in self.in_flight.values() if not task.done()]
        priorities = [run.dispatch.step.priority for run in runs if run.has_place]
        leaked = self._used.total() - sum(asked.places for asked in self._asked_room) - len(priorities)
        others = self._used_by_others.total() - sum(asked.room.open for asked in self._asked_room)
        return max(leaked, abs(others - sum(not is_urgent(priority) for priority in priorities)))

    # --- taking
    def take_soon(self) -> None:
        """Ask the store for requests, one Take at a time."""
        if self._asked_room:
            self._take_again = True
            return
        waiting = sorted(self._backlog & self.agents.keys())
        asked = tuple(self._build_asked_room(name) for name in waiting if self.breakers.may_ask(self._app, name))
        asked = tuple(one for one in asked if one.places)
        if self._stopping or not asked or not self.is_trusted():
            return
        self._asked_room = asked
        for one in asked:
            self._used[one.agent] += one.places
            self._used_by_others[one.agent] += one.room.open
        suspect = next(iter(self._probation), None)
        command = Take(
            actor=self.actor,
            process_no=self.process_no,
            room=tuple((one.agent, one.room.open) for one in asked),
            urgent=tuple((one.agent, one.room.urgent) for one in asked if one.room.urgent),
            names=self._names,
            probation=suspect,
            app=self._app,
            retries=self.retries.keep_for_take((one.agent, one.places) for one in asked),
            siblings=tuple((one.agent, self._siblings[one.agent]) for one in asked if one.agent in self._siblings),
        )
        self._committer.put(command, lambda answer: self._process_take_answer(asked, answer))

    def _build_asked_room(self, agent: str) -> AskedRoom:
        room, limit = self._compute_room(agent), self._settings.batch_max
        return AskedRoom(agent, Room(min(room.open, limit), min(room.urgent, limit)))

    def _free_asked_room(self, asked: Iterable[AskedRoom]) -> None:
        for one in asked:
            self._used[one.agent] -= one.places
            self._used_by_others[one.agent] -= one.room.open

    def _process_take_answer(self, asked: tuple[AskedRoom, ...], answer: Answer | BaseException) -> None:
        self._asked_room = ()
        if isinstance(answer, Busy | Unwritten):  # nothing was taken; the next poll asks again
            self._free_asked_room(asked)
            self.retries.settle_take(())
            return
        if not isinstance(answer, Taken):
            self.retries.lose_take()
            self._unsure += asked  # what was taken, if anything, is found by reconciling; until then its place is kept
            return
        self.breakers.learn([one.agent for one in asked], answer.breakers)
        dispatches = answer.dispatches
        self.retries.settle_take([dispatch.step for dispatch in dispatches])
        got = Counter(dispatch.step.agent for dispatch in dispatches)
        self._free_asked_room(asked)
        for dispatch in dispatches:
            self._use(dispatch.step.agent, dispatch.step.priority)
        full = self.limits.learn([one.agent for one in asked], answer.limited)
        self._backlog -= {one.agent for one in asked if got[one.agent] < one.room.open} - full  # nothing waits any more
        for dispatch in dispatches:
            self.recorder.note_taken(dispatch.step)
            self.dispatch(dispatch, reserved=True)
        again, self._take_again = self._take_again, False
        if again or any(one.agent in self._backlog - full for one in asked if got[one.agent]):
            self.take_soon()

    def list_unsure_places(self) -> tuple[AskedRoom, ...]:
        """Places of Takes whose answer was lost. The store is asked what those took."""
        return self._unsure

    def free_reconciled_places(self, known: tuple[AskedRoom, ...]) -> None:
        """Free the places kept for these lost answers: what they had taken is under way by now.

        Others may have been lost since the store was asked: their places are kept until it is asked again.
        """
        self._free_asked_room(known)
        self._unsure = self._unsure[len(known) :]
        self.take_soon()

    # --- attempts
    async def begin_try(self, step: StepRow) -> float | None:
        """Ask whether an attempt may make another call now.

        Returns: 0 - it may; else the seconds after which to ask again; None: the attempt is over.
        """
        if not self.limits.has_rate(step.agent):
            return 0.0
        answer, _ = await self.ask(
            BeginTry(
                actor=self.actor,
                process_no=self.process_no,
                step_no=step.step_no,
                fence=step.fence,
                app=self._app,
                agent=step.agent,
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

    def adopt(self, step: StepRow, task: TaskRow) -> None:
        """Begin an attempt recorded as ours that never began here: the answer that told of it was lost."""
        if step.state is StepState.RUNNING and step.locked_by == self.process_no:
            left_at = self.ports.clock.monotonic()
            dispatch = Dispatch(step, task.task_id, self.store.now(), task.lost_count)
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
                self.give_back(step.agent, step.priority)
            return
        if not reserved:
            self._use(step.agent, step.priority)
        if dispatch.lost_count >= PROBATION_FROM:
            self._probation[step.task_no] += 1
        left_at = self._committer.left_at if left_at is None else left_at
        deadline = left_at + seconds_between(dispatch.now, step.complete_by)
        run = AttemptRun(self, dispatch, deadline)
        task = asyncio.get_running_loop().create_task(run.run(), name=f"arriero-{run.label}")
        self.in_flight[identity] = task
        self._runs[task] = run
        # By the task itself: it may be cancelled before its first line, or end before this one.
        task.add_done_callback(partial(self._process_attempt_end, run, dispatch))

    def _process_attempt_end(self, run: AttemptRun, dispatch: Dispatch, task: asyncio.Task[None]) -> None:
        step = dispatch.step
        del self._runs[task]
        run.end()
        self.in_flight.pop((step.step_no, step.fence), None)
        if dispatch.lost_count >= PROBATION_FROM:
            self._probation[step.task_no] -= 1
            self._probation += Counter()

    def find_attempt(self, task: "asyncio.Task[Any] | None") -> tuple[StepRow, str] | None:
        """The step whose attempt runs as this asyncio task, and the id of its task; None if there is none."""
        run = None if task is None else self._runs.get(task)
        return None if run is None else (run.dispatch.step, run.dispatch.task_id)

    def definition(self, step: StepRow) -> Step[Any, Any] | None:
        """The code of a step; None when this process does not have it."""
        agent = self.agents.get(step.agent)
        return None if agent is None else agent.steps.get(step.name)
