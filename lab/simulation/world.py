"""One simulated run: three nodes, clients, a nemesis; then heal, wait, and check everything."""

import asyncio
import contextvars
import hashlib
import logging
import random as random_module
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec

from arriero.audit.check import (
    History,
    Violation,
    find_breaker_differences,
    find_convoy_differences,
    find_differences,
    find_pause_differences,
)
from arriero.audit.export import encode_export, read_export
from arriero.audit.payload_record import PayloadRecord, find_record_differences
from arriero.client.app import App
from arriero.client.submission import SubmitOptions, build_submission
from arriero.core.undo import list_open_compensations
from arriero.declare.attempt import Attempt
from arriero.declare.providers import group_agents
from arriero.errors import MissingCompensationWarning, MutilatedExport, StoreError
from arriero.model import HistoryRow, Instant, Loaded, SignalRow, StepRow, StepState, TaskRow, TaskState, Turn
from arriero.model.answers import Answer, Refusal, Submitted
from arriero.model.commands import Submit
from arriero.model.failures import read_task_failure
from arriero.model.processes import ProcessAbout
from arriero.runtime.code import Code, build_versions
from arriero.runtime.node import Node, NodePlan, NodeSession
from arriero.runtime.ports import Ports
from arriero.runtime.process_context import Substitutes
from arriero.runtime.settings import Settings, check_roles
from arriero.runtime.upkeep import Upkeep
from arriero.system.loops import drop_silently

from .batches import Batches, draw_batches
from .bystanders import Bystanders, draw_bystanders
from .callbacks import Callbacks, draw_callbacks
from .called import CALLED
from .children import Children, draw_children
from .counts import judge_counts
from .damage import SHARE as DAMAGED_SHARE
from .damage import Damage
from .election import Believer, Election
from .faults import Faults, drawn
from .forks import Forks, draw_forks
from .keys import Keys
from .ledgers import Ledgers, draw_ledgers
from .limits import draw_limits
from .loop import PROCESS, Deadlock, SimulatedLoop
from .old_rows import OldRows, draw_old_rows
from .outages import judge_outages
from .people import QUEUES, People
from .poison import Poison, draw_poison
from .ports import SimulatedPorts
from .programs import GATEWAYS, Programs, draw_programs
from .publishing import PublishingStore, judge_published
from .questions import Questions, draw_questions
from .releases import Releases, draw_releases
from .routes import Routes, draw_routes
from .runs import Runs, draw_runs
from .shop import AGENTS, DOUBTFUL, FOR_PEOPLE, IN_LINE, REMOTE, WORKFLOWS, Remote, fragile, tagged
from .signals import Signals, draw_signals
from .store import UNEXPECTED, Network, SimulatedStore, submit_directly
from .tagging import Tagging
from .timetables import Timetables, draw_timetables
from .versions import Versions, add_versions, draw_versions

NODES = 3
DOUBTFUL_SHARE = 0.2  # of worlds: they have tasks with a step that nothing undoes
OF_A_DOUBTFUL_WORLD = 0.5  # of its tasks
SNOOZE_KEY = "snooze-1229"  # with it, the seeds at which the tests of breakages begin have no snoozes
PUBLISHING_KEY = "publish-7072"  # as SNOOZE_KEY
WORKFLOW_KEY = "workflows-6"  # as SNOOZE_KEY
LIMITS_KEY = "limits-544"  # as SNOOZE_KEY
KEYS_SHARE = 0.5  # of the seeds that have convoys
ELECTION_SHARE = 0.3  # of the seeds in which leaders, leases and clocks meet separate faults
APPS_SHARE = 0.3  # of the seeds in which the last node is of another App that has the same code
OF_THE_OTHER_APP = 0.4  # of the tasks there
SUBMITTED_AT_NODE = 0.5  # of the tasks: by an App in the process of a node, so that they may begin immediately
ANSWERS_LOST = 0.4  # of those
FAULT_SECONDS = 25.0
HEAL_SECONDS_MAX = 400.0  # every policy of the shop has run out by then, with room to spare
SETTINGS = Settings(
    lease_seconds=3,
    poll_seconds=0.4,
    supervise_seconds=0.5,
    leader_seconds=4,
    progress_seconds=8,
    linger_seconds=0.7,
    batch_max=20,
    redispatch_per_second_max=2,
    public_url="https://callbacks.simulated",
)
CALM_AFTER_SECONDS = 13.0  # when the faults have ceased: by then what is frozen is awake, and what crashed runs again


class Result(msgspec.Struct, frozen=True):
    """What one seed showed."""

    seed: int
    violations: list[Violation]
    fired: dict[str, int]
    states: dict[str, int]
    virtual_seconds: float
    trace: str
    happened: dict[str, int]  # events of convoys


def _add_roles(about: str, roles: frozenset[str]) -> str:
    """What a process says of itself, with its roles: runs of schedules wait for a Scheduler that has their code."""
    said = msgspec.json.decode(about, type=ProcessAbout)
    return msgspec.json.encode(msgspec.structs.replace(said, roles=tuple(sorted(roles)))).decode()


WaitingPart = (
    Signals | Callbacks | Questions | Children | Releases | Forks | Runs | Versions | Batches
)  # its tasks wait for others


def _build_app(*parts: Routes | Programs | Poison | WaitingPart | None) -> App:
    agents = [*AGENTS, *(agent for part in parts if part is not None for agent in part.agents)]
    added = [workflow for part in parts if part is not None for workflow in part.workflows]
    with warnings.catch_warnings():
        # Steps in doubt that nothing undoes are what it looks for.
        warnings.simplefilter("ignore", MissingCompensationWarning)
        return App("simulated", agents=agents, workflows=(*WORKFLOWS, fragile, tagged, *DOUBTFUL, *IN_LINE, *added))


class World:
    """See the module.

    Args:
        ``people``: whether operators, readers and a janitor are part of it.
        keys: whether convoys are part of it; None: the seed decides.
    """

    def __init__(
        self,
        seed: int,
        *,
        tasks: int = 8,
        faults: Faults | None = None,
        people: bool = True,
        keys: bool | None = None,
    ) -> None:
        self.seed = seed
        self.settings = SETTINGS
        self.random = random_module.Random(seed)
        self.loop = SimulatedLoop(random_module.Random(self.random.getrandbits(64)))
        # Operators draw from a separate source, so that a seed without them is the world it was before there were any.
        self.faults = drawn(self.random) if faults is None else faults
        people_random = random_module.Random(f"people-{seed}")
        if people and faults is None:
            self.faults.add_people(
                people_random,
                *(random_module.Random(f"{key}-{seed}") for key in (SNOOZE_KEY, WORKFLOW_KEY, LIMITS_KEY)),
            )
        self._unexpected_random = random_module.Random(f"unexpected-{seed}")
        if faults is None:
            self.faults.add_unexpected(self._unexpected_random)
        self._begin_random = random_module.Random(f"begin-{seed}")
        self._nodes: dict[int, tuple[int, Node]] = {}
        self.store = PublishingStore(self._store_clock, store_id=f"world-{seed}")
        store_random = random_module.Random(f"store-{seed}")
        if people and faults is None:
            self.faults.add_store(store_random)
        asking_random = random_module.Random(f"asking-{seed}")
        self.network = Network(self.store, self._derive_random(), store_random, self.faults, self._later, asking_random)
        late_random = random_module.Random(f"late-{seed}")
        if people and faults is None:
            self.faults.add_late_answers(late_random)
        self._outage_random = random_module.Random(f"outage-{seed}")
        if people and faults is None:
            self.faults.add_outages(self._outage_random)
            self.faults.add_asking(asking_random)
        self.remote = self._build_remote(late_random, asking_random, may_publish=people and faults is None)
        self.routes, self.poison, self.waiting = self._draw_parts(seed, may_have=people and faults is None)
        self.programs = draw_programs(self, seed, may_have=people and faults is None)
        self.app = _build_app(self.routes, self.programs, self.poison, *self.waiting)
        self.election = self._build_election(random_module.Random(f"election-{seed}"), people and faults is None)
        self.people = People(self, people_random)
        self.purged_rows: list[HistoryRow] = []
        keys_random, apps_random = random_module.Random(f"keys-{seed}"), random_module.Random(f"apps-{seed}")
        has_keys = keys_random.random() < KEYS_SHARE and people and faults is None if keys is None else keys
        if has_keys and faults is None:
            self.faults.add_keys(keys_random)
        self.keys = Keys(self, keys_random) if has_keys else None
        self.damage, self.bystanders, self._old_rows = self._draw_rows(may_have=people and faults is None)
        self._other_app = "other" if apps_random.random() < APPS_SHARE and people and faults is None else ""
        self.timetables, self.ledgers = self._draw_producers(has_keys=has_keys, may_have=people and faults is None)
        self._doubt_random, self.tagging = (
            random_module.Random(f"undo-{seed}"),
            Tagging(self, is_on=people and faults is None),
        )
        self._has_doubtful = people and faults is None and self._doubt_random.random() < DOUBTFUL_SHARE
        self._limits = draw_limits(self.app.agents, seed, may_be_limited=people and faults is None)
        self._tasks, self._has_people = tasks // 2 if has_keys else tasks, people
        self._names: Counter[str] = Counter()
        self._processes = 0
        self.acknowledged: set[str] = set()
        self.violations: list[Violation] = []
        self._attempts: dict[tuple[int, int], Attempt] = {}  # by step and fence: who carried it out

    def _build_remote(
        self, late_random: random_module.Random, asking_random: random_module.Random, *, may_publish: bool
    ) -> Remote:
        publishing_random = random_module.Random(f"{PUBLISHING_KEY}-{self.seed}")
        if may_publish:
            self.faults.add_publishing(publishing_random)
        random = random_module.Random(self.random.getrandbits(64))
        return Remote(random, self.faults, late_random, asking_random, publishing_random)

    def _draw_parts(self, seed: int, *, may_have: bool) -> tuple[Routes | None, Poison | None, list[WaitingPart]]:
        """Draw the parts of the world of a seed; the last ones have tasks that wait for others."""
        draws = (
            draw_signals,
            draw_callbacks,
            draw_questions,
            draw_children,
            draw_releases,
            draw_forks,
            draw_runs,
            draw_versions,
            draw_batches,
        )
        waiting = (draw(self, seed, may_have=may_have) for draw in draws)
        return (
            draw_routes(seed) if may_have else None,
            draw_poison(self, seed, may_have=may_have),
            [part for part in waiting if part is not None],
        )

    def _draw_producers(self, *, has_keys: bool, may_have: bool) -> tuple[Timetables | None, Ledgers | None]:
        """Draw the schedules and ledgers.

        Their runs fill the Agents, so requests wait, and a damaged one whose task was put down meets nobody.
        """
        may_have = may_have and self.damage is None
        calls = WORKFLOWS[:3]
        in_line = () if has_keys else IN_LINE[1:2]  # the keys of a world are judged by its own producers
        return (
            draw_timetables(self, self.seed, may_have=may_have, has_keys=has_keys, calls=calls),
            draw_ledgers(self, self.seed, may_have=may_have, calls=calls, in_line=in_line),
        )

    def _draw_rows(self, *, may_have: bool) -> tuple[Damage | None, Bystanders | None, OldRows | None]:
        """Draw which rows cannot be read, one of a task or shared ones, or are old; none in most worlds."""
        random = random_module.Random(f"damage-{self.seed}")
        if random.random() < DAMAGED_SHARE and may_have:
            self.faults.damage = 1.0
            return Damage(self, random, random_module.Random(f"damage-of-what-is-sent-{self.seed}")), None, None
        bystanders = draw_bystanders(self, self.seed, may_have=may_have)
        return None, bystanders, draw_old_rows(self, self.seed, may_have=may_have and bystanders is None)

    def _build_election(self, random: random_module.Random, may_have_faults: bool) -> Election | None:
        """The nemesis and the oracle of leaders; None: there is no election."""
        if may_have_faults and random.random() < ELECTION_SHARE:
            self.faults.add_election(random)
        election = Election(
            store=self.store,
            loop=self.loop,
            faults=self.faults,
            random=random,
            get_leader_seconds=lambda: self.build_settings().leader_seconds,
            crash=self.crash_process,
            list_believers=self.list_believers,
        )
        self.network.election = election
        self.loop.on_tick = election.look
        return election

    def list_believers(self) -> list[Believer]:
        """The processes that live, and whether each believes that it leads."""
        return [
            Believer(process, node.session.context.process_no, node.session.leader.is_leading())
            for process, node in self._nodes.values()
            if not self.loop.is_dead(process) and node.session is not None and hasattr(node.session, "leader")
        ]

    def crash_process(self, process: int, seconds: float) -> None:
        """Kill a process; its node starts again that many seconds later, unless another process has started it by then."""
        self.loop.crash(process)

        async def start_again() -> None:
            for number in list(self._nodes):
                self._start_again(number, process)

        self._later(seconds, start_again)

    def _start_again(self, number: int, process: int) -> None:
        """Start a node whose process was killed, unless another process has started it by then."""
        if self._nodes[number][0] == process:
            self._start_node(number)

    def _derive_random(self) -> random_module.Random:
        return random_module.Random(self.random.getrandbits(64))

    def _store_clock(self) -> Instant:
        return Instant(1_700_000_000_000_000 + round(self.loop.time() * 1_000_000))

    def client_ports(self) -> "SimulatedPorts":
        """Doors of a caller who is not a node."""
        return SimulatedPorts(self, 0, self.people.random)

    def unique(self, what: str) -> str:
        """A name never given before."""
        self._names[what] += 1
        return f"{what}-{self._names[what]}"

    def _later(self, seconds: float, function: Callable[[], Any]) -> None:
        async def run() -> None:
            await asyncio.sleep(seconds)
            await function()

        self.spawn(run(), 0)

    def spawn(self, coroutine: Coroutine[Any, Any, Any], process: int) -> "list[asyncio.Task[Any]]":
        """Run a coroutine as part of a process; 0: of the world itself. Returns: the one task."""
        context = contextvars.copy_context()
        context.run(PROCESS.set, process)
        context.run(REMOTE.set, self.remote)
        if self.programs is not None:
            context.run(CALLED.set, self.programs.called)
        return [self.loop.create_task(coroutine, context=context)]

    async def _submit_child(self, store: SimulatedStore, command: Submit) -> Submitted | Refusal:
        """Commit the submission of a child, in some worlds after a while in which an operator acts on its parent."""
        for part in self.waiting:
            if isinstance(part, Children):
                await part.delay_submission(command)
        return await submit_directly(store, command)

    def build_settings(self) -> Settings:
        """Settings of each node."""
        return self.settings

    def _build_settings_of(self, number: int) -> Settings:
        settings = self.build_settings()
        for part in self.waiting:
            if isinstance(part, Callbacks) and part.leaves_out(number):
                settings = msgspec.structs.replace(settings, public_url="")
        return settings

    def get_judged_rate(self) -> int | None:
        """At how many a second attempts that expired come back under each leader; None: that is not judged."""
        return self.settings.redispatch_per_second_max

    def build_store(self, unexpected: random_module.Random | None) -> SimulatedStore:
        """The store as a new process reaches it."""
        return SimulatedStore(self.network, unexpected=unexpected)

    def build_upkeep(self, store: SimulatedStore, ports: Ports) -> Upkeep | None:
        """The upkeep of a new process, where it has something to do; None: it has none. It drops no statuses here."""
        has_duties = self.bystanders is not None or self._old_rows is not None or self.ledgers is not None
        has_duties = has_duties or any(isinstance(part, Children) for part in self.waiting)
        if not has_duties and not self.faults.workflow_operator:
            return None
        upkept: Any = store
        return Upkeep(store=upkept, ports=ports, replies_keep_seconds=HEAL_SECONDS_MAX * 10)

    # --- nodes
    def _app_of_node(self, number: int) -> str:
        return self._other_app if self._other_app and number == NODES - 1 else self.app.name

    def _app_of_task(self, task_id: str) -> str:
        """The same, however often it is submitted."""
        is_other = random_module.Random(f"app-{self.seed}-{task_id}").random() < OF_THE_OTHER_APP
        return self._other_app if self._other_app and is_other else self.app.name

    def begin_process(self) -> int:
        """Begin a process. Returns its number."""
        self._processes += 1
        return self._processes

    def _start_node(self, number: int) -> None:
        process = self.begin_process()
        programs = self.programs if number >= NODES else None  # that it gives requests to
        roles = check_roles(None if programs is None else programs.draw_roles())
        store = self.build_store(self._unexpected_random)
        rate = 1.0 if self.election is None else self.election.draw_rate(process)
        ports = SimulatedPorts(self, number, rate=rate)
        app = self._app_of_node(number)
        about = self._limits.describe(app, tuple(self.app.session.codes) if "scheduler" in roles else ())
        if self.timetables is not None:
            about = _add_roles(about, roles)
        versions = next((part for part in self.waiting if isinstance(part, Versions)), None)

        def choose_codes() -> dict[str, Code]:  # at the instant at which the process starts
            codes = dict(self.app.session.codes)
            return codes if versions is None else versions.choose_codes(codes)

        node = Node(
            lambda: NodeSession(
                NodePlan(
                    # Where a test's function stands for each step, none stands for the program that is called.
                    agents=[agent for agent in self.app.agents if not agent.pushes]
                    if programs is None
                    else programs.agents,
                    codes=(codes := choose_codes()),
                    versions=build_versions(codes, "", is_pinned=False) if "scheduler" in roles else {},
                    store=store,  # type: ignore[arg-type]  # its methods are set in a loop
                    ports=ports,
                    settings=self._build_settings_of(number),
                    roles=roles,
                    on_end=lambda _task, _live: None,
                    substitutes=Substitutes(self._on_try)
                    if programs is None
                    else None,  # with it no request would be given out
                    about=about if versions is None else add_versions(about, codes),
                    app=app,
                    upkeep=self.build_upkeep(store, ports),
                    groups=group_agents(self.app.agents),
                    submit=partial(self._submit_child, store),
                )
            )
        )
        self._nodes[number] = (process, node)

        async def start() -> None:
            while True:
                try:
                    await node.start()
                    break
                except (StoreError, *UNEXPECTED):
                    await asyncio.sleep(0.5)
            if programs is not None:
                await programs.open_gateway(number, process, node, store, ports)

        self.spawn(start(), process)

    def _on_try(self, _step: object, row: StepRow, first: Attempt, _arguments: object) -> None:
        """A step's function is about to be called. All tries of one attempt are given the same Attempt object."""
        self.network.tries[row.agent] += 1
        if self._attempts.setdefault((row.step_no, row.fence), first) is not first:
            text = f"attempt {row.attempt} of step {row.label} was begun twice under fence {row.fence}"
            self.violations.append(Violation("I11", first.task_id, text))

    def _look_at_loops(self) -> None:
        """Each loop of each node lives, unless the node knows that it is lost."""
        for number, (process, node) in self._nodes.items():
            if self.programs is not None and process in self.programs.leaving:
                continue
            if node.session is not None and not node.session.lost.is_set():
                ended = [loop for loop, lives in node.session.list_loop_liveness().items() if not lives]
                self.violations += [Violation("bug", f"node {number}", f"its loop {loop} has ended") for loop in ended]

    async def strike_nodes(self) -> None:
        """Crash and freeze nodes until the faults end."""
        while self.loop.time() < FAULT_SECONDS:
            await asyncio.sleep(self.random.uniform(0.3, 2))
            self._look_at_loops()
            number = self.random.randrange(NODES)
            process, _ = self._nodes[number]
            if self.loop.is_frozen(process):
                continue
            if self.faults.strikes("crash", self.random):
                self.loop.crash(process)
                await asyncio.sleep(self.random.uniform(0.1, 4))
                self._start_again(number, process)
            elif self.faults.strikes("freeze", self.random):
                self.loop.freeze(process)
                seconds = SETTINGS.lease_seconds * self.random.choice((0.5, 1, 2, 3))
                self.loop.call_later(seconds, self.loop.wake, process)

    async def _go_down(self) -> None:
        """The remote service is down for a while, now and then."""
        random = self._outage_random
        while self.loop.time() < FAULT_SECONDS:
            await asyncio.sleep(random.uniform(2, 12))
            if self.faults.strikes("outage", random):
                self.remote.outage = random.choice(("refuses", "hangs"))
                await asyncio.sleep(random.uniform(1, 8))
                self.remote.outage = None
        self.remote.outage = None

    # --- clients
    async def _client(self, number: int) -> None:
        await asyncio.sleep(self.random.uniform(0, 15))
        workflow = self.random.choice(FOR_PEOPLE if self._has_people else WORKFLOWS)
        if self.routes is not None:
            workflow = self.routes.choose(workflow)
        if self.programs is not None:
            workflow = self.programs.choose(workflow, self._app_of_task(f"order-{number}"))
        if self._has_doubtful and self._doubt_random.random() < OF_A_DOUBTFUL_WORLD:
            workflow = self._doubt_random.choice(DOUBTFUL)
        workflow = self.tagging.choose(workflow)
        call = workflow(number, self.random.random() < 0.4)
        delay = self.random.choice((0, 0, 3))
        command = self.submission(call, f"order-{number}", self.random, number, delay=delay)
        if self._begin_random.random() < SUBMITTED_AT_NODE:
            at = self._begin_random.randrange(NODES)
            process, node = self._nodes[at]
            if not self.loop.is_frozen(process) and self._app_of_node(at) == command.app:
                self.spawn(self._submit_at(node, command), process)
                await asyncio.sleep(self._begin_random.uniform(0, 1))
        await self.submit([command])

    async def _submit_at(self, node: Node, command: Submit) -> None:
        """As an App submits that runs in a node's process: the task may begin with it. The client asks again later."""
        if node.session is None or not hasattr(node.session, "scheduler"):
            return
        begun, on_answer = node.begin_with(command)
        answer: Answer | Exception
        left_at = self.loop.time()
        try:
            (answer,) = await node.session._store.submit([begun])
        except (StoreError, *UNEXPECTED) as error:
            answer = error
        if self._begin_random.random() < ANSWERS_LOST:
            answer = StoreError("the answer was lost")
        if on_answer is not None:
            on_answer(answer, left_at)

    def submission(self, call: Any, task_id: str, random: random_module.Random, number: int, **what: Any) -> Submit:
        """A task as a client submits it."""
        priority = random.randrange(10)
        reply_to = QUEUES[number % len(QUEUES)]
        tags = self.tagging.tags_of(task_id)
        options = SubmitOptions(task_id=task_id, priority=priority, reply_to=reply_to, tags=tags, **what)
        command = build_submission(self.app.session, call, options)
        return msgspec.structs.replace(command, app=self._app_of_task(task_id))

    async def submit(self, commands: list[Submit]) -> list[Answer]:
        """Submit until there is an answer, and wake a node."""
        store = SimulatedStore(self.network)
        while True:
            try:
                answers: list[Answer] = await store.submit(commands)  # type: ignore[attr-defined]  # set in a loop
                break
            except StoreError:
                await asyncio.sleep(0.3)
        for command, answer in zip(commands, answers, strict=True):
            if isinstance(answer, Submitted):
                self.acknowledged.add(answer.task_id or command.task_id)
        _, node = self._nodes[self.random.randrange(NODES)]
        if not self.faults.strikes("lost_wakeup", self.random):
            self.spawn(self._hint(node), 0)
        return answers

    # --- what stands in the store
    def find_task(self, task_id: str) -> TaskRow | None:
        number = self.store.numbers.get(task_id)
        return None if number is None else self.store.tasks.get(number)

    def is_over(self, task_id: str) -> bool:
        """Returns True if a task has ended or was purged."""
        task = self.find_task(task_id)
        return task_id in self.people.purged or (task is not None and task.ended_at is not None)

    def list_waiting(self, task_id: str, is_meant: Callable[[StepRow], bool]) -> list[StepRow]:
        """The open waits of a task that its code has asked for. ``is_meant``: of any wait."""
        task = self.find_task(task_id)
        if task is None or task.state is not TaskState.PROCESSING:
            return []
        life = self.store.load_as_is(task.task_no).life
        return [step for step in life if is_meant(step) and step.state is StepState.PENDING]

    def list_signals(self, task_id: str) -> list[SignalRow]:
        """The signals of a task in the order of their commits."""
        number = self.store.numbers.get(task_id)
        return [] if number is None else [row for _, row in sorted(self.store.signal_rows[number].items())]

    async def _hint(self, node: Node) -> None:
        process = next((p for p, n in self._nodes.values() if n is node), None)
        if (
            process is not None
            and not self.loop.is_frozen(process)
            and node.session is not None
            and hasattr(node.session, "scheduler")
        ):
            context = contextvars.copy_context()
            context.run(PROCESS.set, process)
            context.run(REMOTE.set, self.remote)
            self.loop.call_soon(node.hint, context=context)

    # --- the run
    async def _main(self) -> None:
        for number in range(NODES if self.programs is None else NODES + GATEWAYS):
            self._start_node(number)
        await self.play()

    async def play(self) -> None:
        """What happens in this world."""
        clients = [task for number in range(self._tasks) for task in self.spawn(self._client(number), 0)]
        people = self.people
        clients += self.spawn(people.operate(FAULT_SECONDS), 0)
        clients += self.spawn(people.purge(FAULT_SECONDS), 0)
        if self.faults.snooze:
            clients += self.spawn(people.snooze(FAULT_SECONDS, random_module.Random(f"snoozes-{self.seed}")), 0)
        if self.faults.adjust:
            clients += self.spawn(people.adjust(FAULT_SECONDS), 0)
        if self.tagging.is_on:
            clients += self.spawn(self.tagging.change(FAULT_SECONDS), 0)
        clients += self.spawn(people.operate_workflows(FAULT_SECONDS), 0)
        clients += self.spawn(self._go_down(), 0)
        if self.election is not None and self.faults.store_restart:
            self.spawn(self.election.restart_store(FAULT_SECONDS), 0)
        if self.routes is not None:
            clients += self.spawn(self.routes.fail(self.remote.down, self.loop.time, FAULT_SECONDS), 0)
        if self.programs is not None:
            self.programs.begin()
            clients += self.spawn(self.programs.strike(FAULT_SECONDS), 0)
        clients += self.spawn(people.operate_agents(FAULT_SECONDS, self._outage_random), 0)
        for queue in QUEUES:
            self.spawn(people.read(queue), 0)
        if self.poison is not None:
            clients += self.spawn(self.poison.submit(), 0)
        for part in self.waiting:
            clients += self.spawn(part.live(), 0)
        if self.keys is not None:
            clients += [task for produced in self.keys.producers() for task in self.spawn(produced, 0)]
            clients += self.spawn(self.keys.operate(FAULT_SECONDS), 0)
        clients += self._spawn_producers()
        await self.strike_nodes()
        await asyncio.gather(*clients)
        if self.timetables is not None:
            await self.timetables.end()
        self.faults.active = False
        if self.poison is not None:
            self.spawn(self.poison.submit_healthy(), 0)
        await people.free_agents()
        await people.resume_workflows()
        await people.resume_all(but=0 if self.damage is None else self.damage.task_no)
        if self.damage is None or await self._end_but_for(self.damage):
            await self._heal()
        if self.bystanders is not None:
            self.violations += await self.bystanders.settle()
        if self._old_rows is not None:
            self.violations += self._old_rows.check()

    def _spawn_producers(self) -> "list[asyncio.Task[Any]]":
        """Let schedules and ledgers live, and damage rows."""
        clients: list[asyncio.Task[Any]] = []
        if self.timetables is not None:
            clients += self.spawn(self.timetables.live(FAULT_SECONDS), 0)
        if self.ledgers is not None:
            clients += self.spawn(self.ledgers.live(FAULT_SECONDS), 0)
        if self.damage is not None:
            clients += self.spawn(self.damage.strike(FAULT_SECONDS), 0)
        if self.bystanders is not None:
            clients += self.spawn(self.bystanders.strike(), 0)
        return clients

    async def _end_but_for(self, damage: Damage) -> bool:
        """Everything else must end while one row cannot be read; then it is mended."""
        has_ended = await self._ends(
            lambda task: bool(task.ended_at) or damage.keeps_waiting(task) or self._waits_for_operators(task)
        )
        self.violations += damage.check_told() if has_ended else ()
        damage.mend()
        self.violations += await damage.check_closed()
        await self.people.resume_all(but=0)
        return has_ended

    def _list_blocking(self) -> list[Keys | Children | Batches]:
        """The parts of the world whose tasks may wait for an operator."""
        return [part for part in (self.keys, *self.waiting) if isinstance(part, Keys | Children | Batches)]

    def _waits_for_operators(self, task: TaskRow) -> bool:
        return any(part.keeps_waiting(task) for part in self._list_blocking())

    async def _heal(self) -> None:
        """Every task must end, first without an operator but those behind something that is blocked, then all."""
        blocking = self._list_blocking()
        if await self._ends(lambda task: task.ended_at is not None or self._waits_for_operators(task)):
            if not blocking:
                return
            healed = self.loop.time()
            while not all(part.is_at_rest() for part in blocking) and self.loop.time() < healed + HEAL_SECONDS_MAX:
                for part in blocking:
                    await part.mend()
                await asyncio.sleep(1)
            await self._ends(lambda task: task.ended_at is not None and task.turn is not Turn.WAITING)

    async def _ends(self, is_over: Callable[[TaskRow], bool]) -> bool:
        """Whether all that was submitted comes to its end, and everybody has read of it."""
        healed = self.loop.time()
        while self.loop.time() < healed + HEAL_SECONDS_MAX:
            await asyncio.sleep(2)
            self._look_at_loops()
            if self.election is not None:
                self.election.judge_gap(healed + CALM_AFTER_SECONDS, self.settings.poll_seconds)
            if all(map(is_over, self.store.tasks.values())) and self.people.has_read_all():
                return True
        waiting = [task.task_id for task in self.store.tasks.values() if not is_over(task)]
        self.violations += [
            Violation("I46", task_id, f"not ended {HEAL_SECONDS_MAX:g} s after all faults ceased")
            for task_id in waiting
        ]
        return False

    def run(self) -> Result:
        """Run the seed and check."""
        asyncio.set_event_loop(self.loop)
        logging.getLogger("arriero").disabled = True
        self.loop.set_exception_handler(self._broke)
        try:
            self.loop.run_until_complete(self._main())
            self.violations += self._leaks()  # while everybody is still there
        except Deadlock:
            self.violations.append(Violation("I46", "", "everybody waits and no timer is set"))
        except Exception as error:
            self.violations.append(Violation("bug", "", f"somebody's call raised {error!r}"))
        finally:
            self._drop_everything()
            logging.getLogger("arriero").disabled = False
        self._check()
        heads = "".join(row.hash for row in self.store.log)
        return Result(
            self.seed,
            self.violations,
            dict(self.faults.fired),
            dict(Counter(str(task.state) for task in self.store.tasks.values())),
            self.loop.time(),
            hashlib.blake2b(heads.encode(), digest_size=8).hexdigest(),
            {} if self.keys is None else dict(self.keys.happened),
        )

    def _broke(self, _loop: Any, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if error is not None and not isinstance(error, StoreError):
            self.violations.append(Violation("bug", "", f"{context.get('message')}: {error!r}"))

    def _drop_everything(self) -> None:
        self.loop.set_exception_handler(lambda *_: None)
        dropped: set[asyncio.Task[Any]] = set()
        while tasks := asyncio.all_tasks(self.loop) - dropped:  # what is dropped may begin others
            dropped |= tasks
            for task in tasks:
                drop_silently(task)
                coroutine: Any = task.get_coro()
                with suppress(RuntimeError):  # a coroutine that awaits while being closed; its world no longer exists
                    coroutine.close()
        asyncio.set_event_loop(None)
        self.loop.close()

    # --- checking
    def _check(self) -> None:
        try:
            exported = read_export(encode_export(list(self.store.iterate_history()), self.store.store_id))
        except MutilatedExport as error:
            self.violations.append(Violation("I53", "", str(error)))
            exported = self.store.log
        history = History()
        for row in exported:
            history.add(row)
        self.violations += history.end(redispatch_per_second=self.get_judged_rate())
        if self.election is not None:
            self.violations += self.election.violations
        for number, fold in history.tasks.items():
            self.violations += [
                Violation("I52", fold.task_id, text) for text in find_differences(fold, self.store.load_as_is(number))
            ]
        for convoy in self.store.convoys.values():
            self.violations += [
                Violation("I52", f"convoy {convoy.key}", text) for text in find_convoy_differences(history, convoy)
            ]
        self.violations += self._record_violations(exported)
        self.violations += judge_outages(exported)
        tries = self.network.tries
        if self.programs is not None:
            tries += self.programs.count_attempts(exported)
        self.violations += judge_counts(self.store.select_all_counts(), tries)
        for breaker in self.store.breaker_rows.values():
            self.violations += [
                Violation("I52", breaker.label, text) for text in find_breaker_differences(history, breaker)
            ]
        differing = find_pause_differences(history.store.workflows, list(self.store.pause_rows.values()))
        self.violations += [Violation("I80", "", text) for text in differing]
        for task_id in self.acknowledged - self.store.numbers.keys() - self.people.purged:
            self.violations.append(Violation("I1", task_id, "acknowledged, but not in the store"))
        for task in self.store.tasks.values():
            self.violations += self.books_of(task.task_no)
        self.violations += self.people.check()
        self.violations += self.tagging.check()
        if self.keys is not None:
            self.violations += self.keys.check()
        if self.timetables is not None:
            self.violations += self.timetables.check(exported)
        if self.ledgers is not None:
            self.violations += self.ledgers.check(exported)
        if self.programs is not None:
            self.violations += self.programs.check(exported)

    def _record_violations(self, rows: list[HistoryRow]) -> list[Violation]:
        """Late answers that counted; edits and late answers of which table and history say different things."""
        found = [Violation("I13", "", text) for text in self.network.counted_late]
        found += [Violation("I69", "", text) for text in self.remote.wrong]
        found += [Violation("I74", "", text) for text in self.remote.mixed]
        found += judge_published(self.store, self.remote.publisher, self._attempts)
        of_task: defaultdict[int, list[HistoryRow]] = defaultdict(list)
        for row in rows:
            of_task[row.task_no].append(row)
        store = self.store
        for number in store.tasks.keys() | store.edit_rows.keys() | store.late_answer_rows.keys():
            edits, answers = store.edit_rows[number].values(), store.late_answer_rows[number].values()
            record = PayloadRecord(tuple(edits), tuple(answers))
            found += [
                Violation("I52", f"task {number}", text) for text in find_record_differences(record, of_task[number])
            ]
        return found

    def _leaks(self) -> list[Violation]:
        """Places of Agents that stay taken although nothing is in transit: enough of them stop the Agent."""
        if any(task.ended_at is None for task in self.store.tasks.values()):
            return []
        return [
            Violation("I46", "", f"node {number} keeps {leaked} places of its Agents at rest")
            for number, (process, node) in self._nodes.items()
            if node.session is not None
            and not self.loop.is_frozen(process)  # it has not heard of the end
            and hasattr(node.session, "agents")
            and (leaked := node.session.agents.count_leaked_places())
        ]

    def _judge_undo_in_doubt(self, loaded: Loaded) -> list[Violation]:
        """Judge what was undone of a task that is held because of a step that nothing undoes."""
        still_open = list_open_compensations(loaded.life)
        continues = loaded.task.workflow == DOUBTFUL[0].name
        if not (continues and still_open):
            return []
        return [Violation("I29", loaded.task.task_id, f"held in doubt, but {', '.join(still_open)} was not undone")]

    def books_of(self, task_no: int) -> list[Violation]:
        """Whether a task's effects at the remote service are whole, or undone, as its state says."""
        loaded = self.store.load_as_is(task_no)
        task = loaded.task
        hides = self.damage is not None and self.damage.hides_a_signal(task_no)
        found = [] if hides else [one for part in self.waiting for one in part.judge(task)]
        if task.failure is not None and (failure := read_task_failure(task.failure)).kind in (
            "bug",
            "replay",
            "unawaited",
        ):
            found.append(Violation("I21", task.task_id, failure.reason))
        if task.state is TaskState.PROCESSED:
            wrong = [
                s
                for s in loaded.life
                if s.state is StepState.COMPLETED
                and s.compensation
                and s.idempotency_key  # a child has none: what it did is judged with its own steps
                and self.remote.net[s.idempotency_key] != 1
            ]
            found += [
                Violation("I29", task.task_id, f"processed, but step {step.label} has no effect") for step in wrong
            ]
        elif task.state is TaskState.COMPENSATED:
            # Of all lives: what was completed without a compensation stands also after the task was resubmitted.
            left = {s.idempotency_key for s in loaded.steps if s.state is StepState.COMPLETED and not s.compensation}
            keys = set(self.remote.keys_of[task.task_id])
            if task.first_no is not None:  # an undo undoes its own run
                keys &= {s.idempotency_key for s in loaded.steps}
            standing = [key for key in keys if self.remote.net[key] and key not in left]
            found += [
                Violation("I30", task.task_id, f"compensated, but the effect under {key} stands") for key in standing
            ]
        elif task.failure is not None and read_task_failure(task.failure).kind == "in_doubt":
            found += self._judge_undo_in_doubt(loaded)
        return found
