"""Remote steps in some of the simulated worlds: two programs carry them out, through two processes with the role ``http``.

The programs are not part of arriero, as in life: they reach a process over a network, die with all that they knew, and are slow.
What they are given and what they report is written down, for ``remote_reports`` to judge.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from random import Random
from typing import TYPE_CHECKING, Any

import msgspec

from arriero.audit.check import Violation
from arriero.client.remote_agents import RemoteAgents, RemoteReport, RemoteRequest
from arriero.client.session import Session
from arriero.declare.attempt import Attempt, Undo
from arriero.declare.steps import Agent
from arriero.declare.workflows import Workflow, workflow
from arriero.errors import AgentRequestRefused, Permanent, Transient
from arriero.events.base import payload_hash
from arriero.model import HistoryRow
from arriero.model.policies import Breaker, Supervision
from arriero.runtime.node import Node
from arriero.runtime.ports import Ports
from arriero.store.contract import CAPABILITY_SECRET, SECRET_BYTES

from .called import TRIES, CalledProgram, by_calls, called
from .gateways import Gateway, GatewayNetwork, NoAnswer
from .impostor import Impostor, open_capability
from .remote_reports import (
    ACKNOWLEDGED,
    NOBODY_KNOWS,
    AttemptName,
    Delivery,
    SentReport,
    fold_attempts,
    judge_remote_reports,
)
from .shop import reserve

if TYPE_CHECKING:
    from .world import World

SHARE = 0.25  # of the seeds with operators
OF_TASKS = 0.6  # of the tasks there
OF_CALLS = 0.4  # of these, tasks whose steps arriero calls a program for
GATEWAYS = 2
PROGRAMS_AT_ONCE = 2
# A gateway alone, and one that may hold the task of an attempt itself.
ROLES_OF_GATEWAYS = (("http", "agents"), ("http", "scheduler", "agents"))  # agents: those whose programs arriero calls
POLL_SECONDS_MAX = 3.0
DEAD_SECONDS_MAX = 4.0
LATE_SECONDS_MAX = 3.0
SLOW_SECONDS = (1.2, 2.5)
SHORT_POLL_PAUSE = (1.2, 3.0)  # longer than a request waits for a next poll
SENT_AGAIN_MAX = 8  # until a program gives its report up
# The program sends its report again.
NOT_NOW = frozenset({NOBODY_KNOWS, "report-unanswered", "gateway-not-running", "gateway-draining"})

outside = Agent("outside", breaker=Breaker(minimum=4, window=4, cool_off=1, ramp=2))


@outside.step(remote=True, complete_within=3, supervision=Supervision(attempts=50))
def book(attempt: Attempt, n: int, refuse: bool = False) -> int: ...  # type: ignore[empty-body]


@book.compensation(complete_within=3, supervision=Supervision(attempts=50))
def cancel(undo: Undo[int], n: int, refuse: bool = False) -> None: ...


@workflow
async def by_programs(n: int, refuse: bool) -> int:
    first, second = await asyncio.gather(book(n), book(n + 100))
    third = await reserve(first + second)
    return await book(third, refuse)


class RemoteProgram:
    """One life of a program: it asks for requests, carries them out and reports, until it dies.

    Args:
        number: of its process; another one for each life.
    """

    def __init__(self, programs: "Programs", number: int) -> None:
        self._programs = programs
        self._network = programs.network
        self._random = programs.random
        self._number = number

    async def live(self) -> None:
        """Take and carry out indefinitely."""
        while True:
            gateway = self._network.choose()
            requests = () if gateway is None else await self._take(gateway)
            if gateway is None or not requests:
                await asyncio.sleep(self._programs.draw_pause())
                continue
            await asyncio.gather(*(self._carry_out(request, gateway) for request in requests))

    async def _take(self, gateway: Gateway) -> tuple[RemoteRequest, ...]:
        """Take requests. What came of it is lost now and then: in the process that cannot write it, or in transit."""
        limit, wait_seconds = self._random.randint(1, 3), self._random.uniform(0, POLL_SECONDS_MAX)
        if self._programs.has_short_polls:
            wait_seconds = 0
        is_lost = self._programs.strikes("take_lost")
        is_unwritten = is_lost and self._random.random() < 0.5

        async def take(agents: RemoteAgents) -> tuple[RemoteRequest, ...]:
            async with agents.taking(outside.name, limit, wait_seconds) as requests:
                if is_unwritten:
                    raise ConnectionResetError
            return requests

        try:
            requests = await self._network.ask(gateway, take, wait_seconds=wait_seconds)
        except (NoAnswer, AgentRequestRefused):
            return ()
        return () if is_lost else requests

    async def _carry_out(self, request: RemoteRequest, gateway: Gateway) -> None:
        self._programs.note_delivery(request, self._number)
        if self._programs.strikes("request_released"):
            await self._release(request, gateway)
            return
        await self._die_perhaps()
        capability = await self._extend(request, gateway) if self._programs.strikes("extend") else request.capability
        report = await self._act(request, capability)
        if self._programs.deploys("program_slow"):  # by then the store knows who holds the attempt
            await asyncio.sleep(self._programs.deploy_random.uniform(*SLOW_SECONDS))
        await self._die_perhaps()
        if self._programs.strikes("program_late"):
            await asyncio.sleep(request.remaining_ms / 1000 + self._random.uniform(0, LATE_SECONDS_MAX))
        await self._report(request, report, gateway)

    async def _die_perhaps(self) -> None:
        if self._programs.strikes("program_death"):
            self._programs.kill(self._number)
            await asyncio.sleep(0)  # nothing of it continues from here

    async def _release(self, request: RemoteRequest, gateway: Gateway) -> None:
        """Give it back; if that fails, it comes again once it has expired."""
        await self._programs.send_release(gateway, request.task, request.capability)

    async def _extend(self, request: RemoteRequest, gateway: Gateway) -> str:
        """Ask for more time. Returns the capability to report with: the old one, if there is no more time."""
        seconds = self._random.uniform(0.5, 6)
        try:
            term = await self._network.ask(
                gateway, lambda agents: agents.extend(outside.name, request.task, request.capability, seconds)
            )
        except (NoAnswer, AgentRequestRefused):
            return request.capability
        return term.capability

    async def _act(self, request: RemoteRequest, capability: str) -> RemoteReport:
        """Have the effect at the service, under the request's key. Returns what is to be reported."""
        remote = self._programs.remote
        said: dict[str, Any] = {"message": self._programs.build_message()}
        try:
            if request.kind == "compensation":
                assert request.forward_key is not None
                await remote.undo_under_key(request.forward_key, request.task)
                said |= {"status": "succeeded"}
            else:
                arguments = msgspec.json.decode(request.arguments)
                value = await remote.do_under_key(request.idempotency_key, request.task, arguments["refuse"])
                result = msgspec.Raw(msgspec.json.encode(value + arguments["n"]))
                said |= {"status": "succeeded", "result": result}
        except Permanent as error:
            said |= {"status": "permanent", "code": error.code}
        except Transient:
            said |= {"status": "transient", "retry_after": self._random.choice((None, 0.5))}
        except ConnectionError as error:
            is_down = str(error) == "down"
            said |= {"status": "transient" if is_down else "unknown", "unavailable": is_down}
        return RemoteReport(task=request.task, capability=capability, **said)

    async def _report(self, request: RemoteRequest, report: RemoteReport, gateway: Gateway) -> None:
        """Report until it is acknowledged or refused, often by way of another process than the request came from."""
        for _ in range(SENT_AGAIN_MAX):
            to = self._network.choose(other_than=gateway) if self._programs.strikes("report_elsewhere") else gateway
            if to is not None:
                twice = 2 if self._programs.strikes("report_repeated") else 1
                answers = await asyncio.gather(*(self._report_once(request, report, to) for _ in range(twice)))
                is_told = not NOT_NOW.intersection(answers)
                if is_told and not self._programs.strikes("report_lost"):  # else the answer does not reach the program
                    return
            await asyncio.sleep(self._random.uniform(0.05, 1))
            gateway = self._network.choose() or gateway

    async def _report_once(self, request: RemoteRequest, report: RemoteReport, gateway: Gateway) -> str:
        sent = self._programs.note_report(request, report, self._number)
        sent.answer = await self._programs.send_report(gateway, report)
        return sent.answer


class Programs:
    """The programs of one world, and the processes they ask.

    Args:
        random: a separate source, so that a world without programs is the same as before; ``deploy_random``: so, too.
    """

    agents: tuple[Agent, ...] = (outside, called)
    workflow: Workflow[[int, bool], int] = by_programs
    workflows = (by_programs, by_calls)

    def __init__(self, world: "World", random: Random, deploy_random: Random) -> None:
        self._world = world
        self.random = random
        self.remote = world.remote
        self.network = GatewayNetwork(world.loop, random, world.spawn)
        self.deploy_random = deploy_random
        self.called = CalledProgram(self)
        self.leaving: set[int] = set()  # gateways that were asked to end
        self.has_short_polls = self.deploys("short_poll")  # its programs never wait for a request
        self.deliveries: list[Delivery] = []
        self.requests: list[RemoteRequest] = []  # of the deliveries
        self.sent: list[SentReport] = []
        self._lives: list[asyncio.Task[None]] = []
        # The store would draw it, and a run would not repeat itself.
        world.store.secrets[CAPABILITY_SECRET] = random.randbytes(SECRET_BYTES).hex()

    # --- the part of the world
    def choose(self, drawn: Any, app: str) -> Any:
        """The workflow of a task: one of these, or as it was drawn. The gateways are of the world's own App."""
        is_ours = self.random.random() < OF_TASKS and app == self._world.app.name
        is_called = self.deploy_random.random() < OF_CALLS
        return (by_calls if is_called else self.workflow) if is_ours else drawn

    def draw_roles(self) -> tuple[str, ...]:
        """Draw the roles of a process that gives requests out."""
        return self.random.choice(ROLES_OF_GATEWAYS)

    async def open_gateway(self, number: int, process: int, node: Node, store: Any, ports: Ports) -> None:
        """Let programs reach a process that has started."""
        app = self._world.app
        session = Session(app.name, lambda opening=False: (app.agents, app.session.codes), None)
        session.ports, session.node = ports, node
        await session.open(store)
        self.network.open(number, Gateway(process, RemoteAgents(session), session))

    def begin(self) -> None:
        """Let the programs live, to the end of the world."""
        for _ in range(1 if self.has_short_polls else PROGRAMS_AT_ONCE):  # one: nobody fetches what its poll has left
            self._begin_program()

    async def strike(self, until: float) -> None:
        """Crash and freeze gateways, and let an impostor report, until the faults end."""
        await asyncio.gather(self._strike_gateways(until), Impostor(self).act(until))

    async def _strike_gateways(self, until: float) -> None:
        loop, settings = self._world.loop, self._world.settings
        while loop.time() < until:
            await asyncio.sleep(self.random.uniform(0.5, 3))
            gateway = self.network.choose()
            if gateway is None or loop.is_frozen(gateway.process):
                continue
            if self.deploys("gateway_deployed"):
                self._world.spawn(self._deploy(gateway), gateway.process)
            elif self.strikes("crash"):
                self._world.crash_process(gateway.process, self.random.uniform(0.1, 4))
            elif self.strikes("freeze"):
                loop.freeze(gateway.process)
                loop.call_later(
                    settings.lease_seconds * self.random.choice((0.3, 0.5, 1, 2)), loop.wake, gateway.process
                )

    async def _deploy(self, gateway: Gateway) -> None:
        """End a gateway as a deploy does, and start the next one. Programs still reach it while it drains."""
        session = gateway.session
        if session.node is None:
            return
        node, session.node = session.node, None
        session.draining_node = node
        self.leaving.add(gateway.process)
        try:
            await node.stop(drain=True)
        finally:
            session.draining_node = None
            self._world.crash_process(gateway.process, self.deploy_random.uniform(0.1, 1))

    def draw_pause(self) -> float:
        """Draw how long a program that got nothing waits before it asks again."""
        return self.random.uniform(*SHORT_POLL_PAUSE if self.has_short_polls else (0.05, 0.5))

    def _begin_program(self) -> None:
        number = self._world.begin_process()
        self._lives += self._world.spawn(RemoteProgram(self, number).live(), number)

    def kill(self, number: int) -> None:
        """Let a program die; another one begins some seconds later."""
        self._world.loop.crash(number)
        self._world.spawn(self._begin_again(), 0)

    async def _begin_again(self) -> None:
        await asyncio.sleep(self.random.uniform(0, DEAD_SECONDS_MAX))
        self._begin_program()

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine that no process of the world is to blame for."""
        self._world.spawn(coroutine, 0)

    # --- what the programs do
    def strikes(self, kind: str) -> bool:
        """Whether a fault happens on this occasion."""
        return self._world.faults.strikes(kind, self.random)

    def deploys(self, kind: str) -> bool:
        """Whether a fault of ``DEPLOYS`` happens, from a separate source: the other faults strike as without it."""
        return self._world.faults.strikes(kind, self.deploy_random)

    def get_time(self) -> float:
        """The time of the world."""
        return self._world.loop.time()

    def build_message(self) -> str:
        """Build a message that no other report has."""
        return self._world.unique("message")

    async def send_report(self, gateway: Gateway, report: RemoteReport) -> str:
        """Send a report. Returns what it was answered; see ``SentReport``."""
        return await self._send(gateway, lambda agents: agents.report(outside.name, report))

    async def send_extension(self, gateway: Gateway, task: str, capability: str, seconds: float) -> str:
        """Ask for more time; else as ``send_report``."""
        return await self._send(gateway, lambda agents: agents.extend(outside.name, task, capability, seconds))

    async def send_release(self, gateway: Gateway, task: str, capability: str) -> str:
        """Give an attempt back; else as ``send_report``."""
        return await self._send(gateway, lambda agents: agents.release(outside.name, task, capability))

    async def _send(self, gateway: Gateway, request: Callable[[RemoteAgents], Awaitable[Any]]) -> str:
        try:
            await self.network.ask(gateway, request)
        except AgentRequestRefused as refusal:
            return refusal.code
        except NoAnswer:
            return NOBODY_KNOWS
        return ACKNOWLEDGED

    def note_delivery(self, request: RemoteRequest, program: int) -> None:
        """Note that a program has got a request."""
        self.requests.append(request)
        self.deliveries.append(Delivery(self.name_attempt(request), program, self._world.store.now()))

    def note_report(self, request: RemoteRequest, report: RemoteReport, program: int, *, trick: str = "") -> SentReport:
        """Note that a report is being sent, for the attempt of a request."""
        is_undo = request.kind == "compensation"
        result = "null" if is_undo else bytes(report.result).decode()
        sent = SentReport(
            name=self.name_attempt(request),
            program=program,
            result=payload_hash(result if report.status == "succeeded" else report.message),
            at=self._world.store.now(),
            complete_by=open_capability(report.capability).complete_by,
            trick=trick,
        )
        self.sent.append(sent)
        return sent

    @staticmethod
    def name_attempt(request: RemoteRequest) -> AttemptName:
        """The attempt that the capability of a request speaks for."""
        capability = open_capability(request.capability)
        return AttemptName(request.task, request.idempotency_key, capability.attempt, capability.fence)

    # --- checking
    def count_attempts(self, rows: list[HistoryRow]) -> Counter[str]:
        """Count the calls that began, at most: one for each attempt of a program that polls, ``TRIES`` of one that is called."""
        whole = self._add_purged(rows)
        polled, pushed = (len(fold_attempts(whole, agent.name).names) for agent in (outside, called))
        return Counter({outside.name: polled, called.name: TRIES * pushed})

    def _add_purged(self, rows: list[HistoryRow]) -> list[HistoryRow]:
        return [*(row for row in self._world.purged_rows if row.task_no > 0), *rows]

    def check(self, rows: list[HistoryRow]) -> list[Violation]:
        """Judge what was reported. ``rows``: the history; that of purged tasks is added."""
        ended = [life for life in self._lives if life.done() and not life.cancelled()]
        broken = self.network.broken + [f"a program ended by {life.exception()!r}" for life in ended]
        found = [Violation("bug", "", text) for text in broken]
        return found + judge_remote_reports(self._add_purged(rows), outside.name, self.deliveries, self.sent)


def draw_programs(world: "World", seed: int, *, may_have: bool) -> Programs | None:
    """Draw whether programs are part of the world of a seed, and what goes wrong with them."""
    random = Random(f"programs-{seed}")
    if random.random() >= SHARE or not may_have:
        return None
    world.faults.add_programs(random)
    deploy_random = Random(f"deploys-{seed}")
    world.faults.add_deploys(deploy_random)
    return Programs(world, random, deploy_random)
