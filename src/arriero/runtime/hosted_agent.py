"""One Agent in one process: how many attempts may begin, which request gets a free place, and when to ask the store for more.

What is known here of limits and breakers saves commands. The store decides in the Take.
"""

import logging
from collections.abc import Callable, Iterable, Sequence

from ..core.capacity import Concurrency, Room, add_ended_call, begin_concurrency, compute_room, is_urgent
from ..core.routing import AgentReport, compute_health
from ..declare.steps import Agent
from ..model import Instant, StepRow
from ..model.agents import FAILED_ENDS
from ..model.answers import AttemptApplied, LimitedAgent, TryDelayed
from ..model.commands import BeginTry
from ..system.rate_limited_log import RateLimitedLog
from .breakers import LOOK_SECONDS as BREAKER_SECONDS
from .breakers import AgentBreakers
from .call_monitor import CallCounter, EndedCall
from .callbacks import list_steps_without_url
from .process_context import ProcessContext
from .retry_budgets import LOOK_SECONDS, AgentRetries

logger = logging.getLogger("arriero")

TRY_SECONDS = 0.01  # the shortest wait for a rate
TOLD_FACTOR = 1.5  # of places, between two lines of the log about one Agent: smaller moves are everyday
# Between Takes of an Agent whose room is used up, unless this process frees a slot. Other processes take for the slots that
# they free. Only what a process leaves behind that ends or drains waits so long.
USED_UP_SECONDS = 0.5
TOLD_AFTER_SECONDS = 1.0  # of waiting for the retry budget: a shorter wait is over before a caller has read of it
REPORT_SECONDS = 0.5  # before the end of an attempt: its last failure is reported then, and not lost as an expiry
WAKES_PER_SECOND_MAX = 50.0  # of all retries that wait: more would keep the event loop busy for nothing


def choose_hosted(agents: Iterable[Agent], roles: frozenset[str]) -> tuple[Agent, ...]:
    """Choose the Agents to host.

    Programs outside of Python ask a process with the role ``http`` for requests, so that one hosts their Agents. All others
    are hosted by the role ``agents``.
    """
    return tuple(agent for agent in agents if ("http" if agent.is_pulled else "agents") in roles)


class HostedAgent:
    """One Agent in one process: its places, its limits, its breakers, its retry budget and its adaptive concurrency.

    Args:
        take_soon: asks the store for requests.
        take_in_next_turn: asks the store for requests of an Agent in the next turn of the event loop.

    Attributes:
        used, used_by_others: places in use, and those of them that are used by work that is not urgent.
        kept: of those in use, places that are kept for what the Take running may bring.
        has_backlog: requests may wait in the store; those go first.
        is_limited, has_rate: its attempts begin with a Take alone; each further try asks the store.
        is_taking: False once the process drains.
        without_url: names of steps that no attempt of begins here; see ``callbacks.list_steps_without_url``.
        wanted, delivered, last_poll: requests that open polls of programs ask for, attempts that programs hold, and when a
            program asked last by the store's clock; 0: none has.
    """

    def __init__(
        self,
        agent: Agent,
        context: ProcessContext,
        counter: CallCounter,
        *,
        take_soon: Callable[[], None],
        take_in_next_turn: "Callable[[HostedAgent], None]",
    ) -> None:
        self.agent = agent
        self.name = agent.name
        self._context = context
        self._take_soon = take_soon
        self._take_in_next_turn = take_in_next_turn
        self.breakers = AgentBreakers(agent, context, counter)
        self.retries = AgentRetries(agent, context.clock, self.note_waiting)
        self.used = self.used_by_others = self.kept = 0
        self._ready_retries = 0  # that have waited, and get their place before new work does
        self._waiting_retries = 0
        self.has_backlog = False
        self.is_taking = True
        self.without_url = frozenset(name for _, name in list_steps_without_url([agent], context.settings.public_url))
        self.is_limited = bool(agent.limits)
        self.has_rate = any(limit.policy.kind == "rate" for limit in agent.limits)
        self._has_news = False  # a new request or a free slot since the last Take was sent
        self._used_up_until = 0.0  # monotonic
        self._looked_at = float("-inf")  # at the breaker, monotonic
        # A test calls a function in place of a program, so nobody asks for its requests.
        self.is_pulled = agent.is_pulled and context.substitutes is None
        self.wanted = self.delivered = 0
        self.last_poll = Instant(0)
        self._concurrency = None if agent.adaptive is None else begin_concurrency(agent.adaptive)
        self._told_places = 0 if self._concurrency is None else self._concurrency.places
        self._log = RateLimitedLog(logger, context.clock.monotonic, logging.INFO)

    # --- free places
    def count_places(self) -> int:
        """Count all places that it has now. Where programs ask for its requests, it has as many as they ask for."""
        places = self.agent.max_in_flight if self._concurrency is None else self._concurrency.places
        return min(places, self.count_wanted()) if self.is_pulled else places

    def count_wanted(self) -> int:
        """Count the requests that programs ask for now, and the attempts that they hold."""
        return self.wanted + self.delivered

    def compute_room(self, *, of_retry: bool = False) -> Room:
        """Compute the free places for new work. ``of_retry``: for a retry that waits, which gets its place before that."""
        places = self.count_places()
        room = compute_room(
            places=places,
            reserved=min(self.agent.reserved, max(places - 1, 0)),
            used=self.used,
            used_by_others=self.used_by_others,
        )
        kept = 0 if of_retry else self._ready_retries
        return Room(max(room.open - kept, 0), room.urgent) if kept else room

    def has_room(self, priority: int, *, of_retry: bool = False) -> bool:
        """Returns True if work of the priority would get a place."""
        room = self.compute_room(of_retry=of_retry)
        return room.open > 0 or (room.urgent > 0 and is_urgent(priority))

    def may_reserve(self, priority: int) -> bool:
        """Returns True if there is a place for a new request, and none waits before it."""
        return self.is_taking and not self.has_backlog and self.has_room(priority)

    def report_room(self, *, is_routed: bool) -> AgentReport:
        """Report it as other processes see it. ``is_routed``: others provide its steps, so its health counts."""
        calls = self.breakers.count_ended() if is_routed else (0, 0)
        return AgentReport(
            self.compute_room().open if self.is_taking else 0,
            self.count_places(),
            round(compute_health(*calls, self.agent.breaker), 2),
            any(not target for _, _, target in tuple(self.breakers.known)),
            self.last_poll,
            self.retries.report_held(max(self._waiting_retries - self._ready_retries, 0)),
        )

    # --- taking a place, and giving it back
    def reserve(self, step: str, priority: int, target: str = "") -> bool:
        """Take a place for a new request of a step. Returns False if the request must wait in the store."""
        if step in self.without_url:
            return False
        if self.breakers.known and self.breakers.is_barred(self._context.app, target):
            return False  # it is taken from the store, by the one who the breaker lets through
        if self.is_limited:
            self.has_backlog = True
            self._take_in_next_turn(self)
            return False
        if self.has_backlog or not self.is_taking or not self.has_room(priority):
            self.has_backlog = True
            return False
        if not self._context.is_trusted():
            return False
        self.use(priority)
        return True

    def use(self, priority: int) -> None:
        """Count a place as used, also if none is free: the store has recorded its attempt as ours."""
        self.used += 1
        self.used_by_others += not is_urgent(priority)

    def give_back(self, priority: int) -> None:
        """Free a place that was reserved, or whose attempt has ended."""
        self.used -= 1
        self.used_by_others -= not is_urgent(priority)
        if self.has_backlog:
            if self.is_limited:
                self._take_in_next_turn(self)
            else:
                self._take_soon()

    def keep(self, room: Room) -> None:
        """Keep free places for what a Take may bring."""
        self.kept = room.total
        self.used += room.total
        self.used_by_others += room.open

    def free(self, room: Room) -> None:
        """Free places that were kept for a Take."""
        self.used -= room.total
        self.used_by_others -= room.open

    # --- requests that wait in the store
    def note_waiting(self) -> None:
        """Note that a request waits in the store: a Take that was sent before may have missed it."""
        self.has_backlog = self._has_news = True
        self._take_soon()

    def look_at_breaker(self) -> None:
        """Ask the store for requests now and then: with them it says how the breaker is, and no other request waits."""
        at = self._context.clock.monotonic()
        if at >= self._looked_at + BREAKER_SECONDS:
            self._looked_at = at
            self.note_waiting()

    def may_ask(self) -> bool:
        """Returns False if a Take would find nothing, as the last one did: all room is in use, or what waits does not begin here.

        News, or half a second, ends that. A Take locks the limits, so those in vain would make all others wait.
        """
        is_worth_it = self._has_news or self._context.clock.monotonic() >= self._used_up_until
        return is_worth_it and self.breakers.may_ask()

    def note_news(self) -> None:
        """Note that the next Take is worth it: there is a new request, or a free slot. One that was sent may miss it."""
        self._has_news = True

    def note_asked(self) -> None:
        """Note that a Take is sent that will find all that is known here."""
        self._has_news = False

    def learn_limits(self, found: LimitedAgent | None, *, has_got: bool) -> bool:
        """Take in what a Take has found; None: it has no limits. Returns True if its limits hold requests back.

        ``has_got``: the Take brought a request. If it did not, what waits may be of steps that do not begin here.
        """
        self.is_limited, self.has_rate = found is not None, found is not None and found.has_rate
        is_fruitless = bool(self.without_url) and not has_got
        if found is not None and found.is_full and found.is_used_up:
            is_fruitless = True
        self._used_up_until = self._context.clock.monotonic() + USED_UP_SECONDS if is_fruitless else 0.0
        return found is not None and found.is_full

    # --- calls and their retries
    def note_call(self, step: StepRow, call: EndedCall, *, retry_after: float | None, unavailable: bool) -> None:
        """Note a call of an attempt here that has ended."""
        if self._concurrency is not None:
            self._concurrency = self._adapt(self._concurrency, call)
        self.breakers.note_call(step, call, retry_after=retry_after, unavailable=unavailable)

    def _adapt(self, concurrency: Concurrency, call: EndedCall) -> Concurrency:
        agent = self.agent
        assert agent.adaptive is not None
        after = add_ended_call(
            concurrency,
            agent.adaptive,
            agent.max_in_flight,
            seconds=call.seconds,
            has_failed=call.end in FAILED_ENDS,
            in_flight=self.used - self.kept,  # in a place that is kept no call is made yet
        )
        before, places = self._told_places, after.places
        if not before / TOLD_FACTOR < places < before * TOLD_FACTOR:
            self._told_places = places
            why = "its service answers as fast as always" if places > before else "its service slows down or fails"
            self._log.tell(
                self.name,
                f"Agent {self.name} now makes at most {places} concurrent calls in this process, before {before}: {why}; its"
                f" bounds are {agent.adaptive.minimum} and {agent.max_in_flight}",
            )
        return after

    def flush_log(self) -> None:
        """Write what is due of the log; to be called again and again."""
        self._log.flush()

    async def begin_try(self, step: StepRow, *, in_doubt: bool) -> float | None:
        """Ask whether an attempt may make another call now.

        The store is asked if calls are counted. It is also asked if a program may report by way of a process with the role
        ``http``: the step may be completed meanwhile, and perhaps undone; and that process must find in the row that a call
        before may have happened (``in_doubt``). Where only this process can report, its death or silence leaves the doubt.

        Returns: 0 - it may; else the seconds after which to ask again; None: the attempt is over.
        Raises: StoreError - nobody knows.
        """
        if not self.has_rate and not self.agent.pushes:
            return 0.0
        answer, _ = await self._context.ask(
            BeginTry(
                actor=self._context.actor,
                process_no=self._context.process_no,
                step_no=step.step_no,
                fence=step.fence,
                app=self._context.app,
                agent=step.agent,
                in_doubt=in_doubt,
            )
        )
        if isinstance(answer, TryDelayed):
            return max(answer.seconds, TRY_SECONDS)
        return 0.0 if isinstance(answer, AttemptApplied) else None

    async def wait_for_retry(
        self, priority: int, *, remaining: Callable[[], float], is_barred: Callable[[], bool]
    ) -> bool:
        """Wait, without a place, until a retry may be made and has a place again.

        Its place goes to requests that make a call now. If it kept it, the retries of a service that fails often would fill all
        places, and then nothing would make the calls that allow retries.

        Args:
            remaining: seconds that its attempt has left.
            is_barred: True once a breaker lets nothing through as always: then the retry is not made.
        Returns: False if no retry is made. It has no place then.
        """
        clock, retries, has_token, is_over = self._context.clock, self.retries, False, False
        began = clock.monotonic()
        self.give_back(priority)
        self._waiting_retries += 1
        try:
            while (left := remaining() - REPORT_SECONDS) > 0 and not is_barred():
                if not has_token and (has_token := retries.may_retry()):
                    self._ready_retries += 1
                if has_token and (is_over := self.has_room(priority, of_retry=True)):
                    self.use(priority)
                    break
                if not has_token and clock.monotonic() >= began + TOLD_AFTER_SECONDS:
                    retries.tell()
                await clock.sleep(min(max(LOOK_SECONDS, self._waiting_retries / WAKES_PER_SECOND_MAX), left))
            return is_over
        finally:
            self._waiting_retries -= 1
            self._ready_retries -= has_token
            if has_token and not is_over:
                retries.give_back()


def count_leaked(hosted: Sequence[HostedAgent], priorities: Sequence[int], kept: Sequence[Room]) -> int:
    """Count places in use that belong to nobody, for the simulator and tests.

    Args:
        priorities: of the running attempts that have a place.
        kept: for the Take running.
    """
    leaked = sum(one.used for one in hosted) - sum(room.total for room in kept) - len(priorities)
    others = sum(one.used_by_others for one in hosted) - sum(room.open for room in kept)
    return max(leaked, abs(others - sum(not is_urgent(priority) for priority in priorities)))
