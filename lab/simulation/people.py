"""The operators of a simulated world: operators with their verbs, readers of reply queues, and a caller who purges."""

import asyncio
from collections import defaultdict
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, Any

import msgspec

from arriero.audit.check import Violation
from arriero.client import task_verbs
from arriero.client.replies import Acknowledger, Replies
from arriero.core.children import name_task
from arriero.errors import InvalidInput, StoreError
from arriero.model import Loaded, StepKind, StepRow, StepState, TaskRow, TaskState, Verb, later
from arriero.model.agents import AgentVerb, BreakerRow
from arriero.model.commands import Operate, OperateAgent
from arriero.model.workflow_pauses import OperateWorkflow, PauseState
from arriero.store.contract import Purge, PurgeNamed

from .store import SimulatedStore

if TYPE_CHECKING:
    from .world import World

QUEUES = ("web-1", "web-2")
PURGE_AFTER_SECONDS = 6.0
READER_AWAY_SECONDS_MAX = 15.0
SNOOZE_SECONDS = (0.5, 12.0)
VERBS = tuple(
    verb for verb in Verb if verb not in (Verb.SNOOZE, Verb.TAG, Verb.ADJUST, Verb.PIN)
)  # asked for at any time; those three are drawn apart
LIMITS = (  # fewer attempts than have failed are refused
    {"attempts": 1, "rounds": 1},
    {"attempts": 2},
    {"attempts": 6},
    {"complete_within": 9.0},
    {"delay": 0.0, "cool_off": 0.5},
    {"rounds": 3, "cool_off": 2.0, "wait_within": 20.0},  # by default a round begins after 15 minutes
)
MENDING = (Verb.RESUBMIT, Verb.RESUBMIT, Verb.ANSWER, Verb.COMPENSATE)
_read_events = msgspec.json.Decoder(list[dict[str, Any]]).decode


class People:
    """See the module. What they do goes through the same network as everything else."""

    def __init__(self, world: "World", random: Random) -> None:
        self._world = world
        self.random = random
        self._store: Any = SimulatedStore(world.network)
        self._names = Random(f"names-{world.seed}")  # its own: what else operators do is drawn as before
        self.purged: set[str] = set()
        self._seen: defaultdict[str, list[tuple[int, str]]] = defaultdict(
            list
        )  # by task: number and kind, as they came
        # By task and run: kinds of statuses, as their history said.
        self._published: defaultdict[str, dict[int, list[str]]] = defaultdict(dict)

    # --- operators
    async def operate(self, until: float) -> None:
        """Ask for verbs at any time, whether or not they make sense."""
        while self._world.loop.time() < until:
            await asyncio.sleep(self.random.uniform(0.2, 2))
            numbers = sorted(self._world.store.tasks)
            if not numbers or not self._world.faults.strikes("operator", self.random):
                continue
            held = [no for no in numbers if self._world.store.tasks[no].state is TaskState.HELD]
            if held and self.random.random() < 0.5:
                await self.ask(self.random.choice(held), self.random.choice(MENDING))
            else:
                await self.ask(self.random.choice(numbers), self.random.choice(VERBS))

    async def snooze(self, until: float, random: Random) -> None:
        """Snooze tasks at any time; those of which an attempt is running refuse it."""
        while self._world.loop.time() < until:
            await asyncio.sleep(random.uniform(0.1, 1))
            numbers = sorted(self._world.store.tasks)
            if numbers and self._world.faults.strikes("snooze", random):
                await self.ask(random.choice(numbers), Verb.SNOOZE, within=random.uniform(*SNOOZE_SECONDS))

    async def adjust(self, until: float) -> None:
        """Change limits of tasks and their steps at any time; those that do not take them refuse."""
        random = Random(f"limits-{self._world.seed}")
        while self._world.loop.time() < until:
            await asyncio.sleep(random.uniform(0.1, 1))
            numbers = sorted(self._world.store.tasks)
            if numbers and self._world.faults.strikes("adjust", random):
                limits = msgspec.json.encode(random.choice(LIMITS)).decode()
                within = random.choice((0.0, 0.0, random.uniform(5, 30)))
                await self.ask(random.choice(numbers), Verb.ADJUST, limits=limits, within=within)

    async def ask(self, task_no: int, verb: Verb, **what: Any) -> None:
        """Look at a task and ask for the verb on it; whatever keeps that from being done is taken as it comes."""
        try:
            loaded = await self._store.load(task_no)
            if loaded is None:
                return
            command = self._command(verb, task_verbs.require_readable(loaded), what)
            if command is not None:
                await self._store.apply([command])
        except (StoreError, InvalidInput):
            return  # they look again, later

    def _command(self, verb: Verb, loaded: Loaded, what: dict[str, Any]) -> Operate | None:
        if verb is Verb.EXTEND:
            what = {"within": self.random.uniform(5, 30)}
        elif verb is Verb.RESUBMIT and self.random.random() < 0.5:
            what = task_verbs.build_edit(loaded, self._world.app.session.codes, {"refuse": False}, None)
        elif verb is Verb.ANSWER:
            step = self._settled_by_hand(loaded)
            if step is None:
                return None
            is_undo = step.kind is StepKind.COMPENSATION
            what = {"step": step.ordinal, "did_not_happen": not is_undo, "result": "null" if is_undo else None}
        return task_verbs.build_command(
            verb, loaded, self._world.store.store_id, by="ana", reason="she says so", **what
        )

    def _settled_by_hand(self, loaded: Loaded) -> StepRow | None:
        """A compensation that she carried out herself, or a step in doubt of which she found that it did not happen."""
        remote = self._world.remote
        for step in loaded.life:
            if step.kind is StepKind.COMPENSATION and step.state is not StepState.COMPLETED:
                undone = next(one for one in loaded.steps if one.step_no == step.undoes)
                remote.take_back(undone.idempotency_key)
                return step
            may_settle = step.kind is StepKind.STEP and step.in_doubt and step.state in _CLOSED
            nothing_undoes_it = step.compensation is None and not (step.pivot or step.effect_free)
            if may_settle and (nothing_undoes_it or not remote.net[step.idempotency_key]):
                remote.take_back(step.idempotency_key)  # by hand, and it cannot land later
                return step
        return None

    async def operate_agents(self, until: float, random: Random) -> None:
        """Open, close, pause and resume Agents at any time, whether or not it makes sense."""
        while self._world.loop.time() < until:
            await asyncio.sleep(random.uniform(0.5, 4))
            if self._world.faults.strikes("agent_operator", random):
                agent, target = random.choice((("left", ""), ("right", "part-0"), ("right", "part-1"), ("right", "")))
                await self._ask_agent(random.choice(tuple(AgentVerb)), agent, target, self._world.app.name)

    async def _ask_agent(self, verb: AgentVerb, agent: str, target: str, app: str) -> None:
        command = OperateAgent(
            actor="ana", verb=verb, app=app, agent=agent, target=target, by="ana", reason="she says so"
        )
        with suppress(StoreError):
            await self._store.apply([command])

    async def free_agents(self) -> None:
        """No Agent stays paused, or opened by an operator, indefinitely."""
        rows = self._world.store.breaker_rows

        def list_kept() -> list[tuple[AgentVerb, BreakerRow]]:
            paused = [(AgentVerb.RESUME, row) for row in rows.values() if row.paused_at is not None]
            opened = [(AgentVerb.CLOSE, row) for row in rows.values() if row.state == "open" and row.probe_at is None]
            opened += [(AgentVerb.CLOSE, row) for row in rows.values() if self._waits_for_unreadable(row)]
            return paused + opened

        while kept := list_kept():
            for verb, row in kept:
                await self._ask_agent(verb, row.agent, row.target, row.app)
            await asyncio.sleep(0.5)

    def _waits_for_unreadable(self, breaker: BreakerRow) -> bool:
        """Whether a breaker waits for the end of a canary whose row nobody can read: an operator closes it."""
        damage = self._world.damage
        if damage is None or breaker.state != "half_open":
            return False
        name = (breaker.app, breaker.agent, breaker.target, breaker.fence)
        steps = self._world.store.steps.get(damage.task_no, {}).values()
        return any((step.app, step.agent, step.target, step.canary) == name for step in steps)

    async def resume_all(self, *, but: int) -> None:
        """Nothing stays paused indefinitely, ``but`` the task that cannot be read."""
        tasks = self._world.store.tasks
        while paused := [t.task_no for t in tasks.values() if t.paused_at is not None and t.task_no != but]:
            for task_no in paused:
                await self.ask(task_no, Verb.RESUME)
            await asyncio.sleep(0.5)

    # --- workflows
    async def operate_workflows(self, until: float) -> None:
        """Pause and resume workflows for new tasks at any time, whether or not it makes sense."""
        random = Random(f"workflows-{self._world.seed}")
        while self._world.faults.workflow_operator and self._world.loop.time() < until:
            await asyncio.sleep(random.uniform(0.3, 3))
            if self._world.faults.strikes("workflow_operator", random):
                workflow = random.choice(
                    sorted({task.workflow for task in self._world.store.tasks.values()} or {"pack"})
                )
                await self._ask_workflow(workflow, random.choice(tuple(PauseState)))

    async def _ask_workflow(self, workflow: str, state: PauseState) -> None:
        app = self._world.app.name
        command = OperateWorkflow(actor="ana", app=app, workflow=workflow, state=state, by="ana", reason="she says so")
        with suppress(StoreError):
            await self._store.change_workflow_pause(command)

    async def resume_workflows(self) -> None:
        """No workflow stays paused indefinitely."""
        rows = self._world.store.pause_rows
        while paused := [row.workflow for row in rows.values() if row.is_paused]:
            for workflow in paused:
                await self._ask_workflow(workflow, PauseState.RESUMING)
            await asyncio.sleep(0.5)

    # --- readers
    async def read(self, queue: str) -> None:
        """Read a queue indefinitely, and begin again wherever the reader died."""
        while True:
            try:
                await self._read(queue)
                await asyncio.sleep(self.random.uniform(0, READER_AWAY_SECONDS_MAX))
            except StoreError:
                await asyncio.sleep(0.2)

    async def _read(self, queue: str) -> None:
        ports: Any = self._world.client_ports()
        acknowledger = Acknowledger(self._store, ports)
        replies = Replies(queue, self._store, ports, acknowledger)
        try:
            while True:
                status = await anext(replies)
                self._seen[status.task_id].append((status.number, status.kind))
                if self._world.faults.strikes("reader", self.random):
                    return  # what it took last comes again
        finally:
            acknowledger.abandon()

    def has_read_all(self) -> bool:
        """Whether no status waits any longer."""
        return not self._world.store.statuses

    # --- purging
    async def purge(self, until: float) -> None:
        """Remove what ended some seconds ago, after one last look at its books."""
        while self._world.loop.time() < until:
            await asyncio.sleep(self.random.uniform(1, 4))
            if self._world.faults.strikes("purge", self.random):
                await self._purge()

    async def _purge(self) -> None:
        store = self._world.store
        rows = list(store.log)
        before_rows = list(store.tasks.values())
        before = {task.task_id: task.task_no for task in before_rows}
        published = {task_id: self._kinds(task_no) for task_id, task_no in before.items()}
        violations = {task_id: self._world.books_of(task_no) for task_id, task_no in before.items()}
        which = Purge(
            states=(TaskState.PROCESSED, TaskState.COMPENSATED, TaskState.HELD),
            ended_before=later(store.now(), -PURGE_AFTER_SECONDS),
        )
        await store.purge(which, actor="janitor", limit=3)
        keys = set() if self._world.keys is None else await self._purge_keys(which)
        gone = before.keys() - store.numbers.keys()
        self._world.purged_rows += [row for row in rows if row.task_id in (keys if row.task_no < 0 else gone)]
        runs = {task.task_id: task for task in before_rows}
        for task_id in gone:
            self.purged.add(task_id)
            self._note_published(runs[task_id], published[task_id])
            self._world.violations += violations[task_id]

    async def _purge_keys(self, which: Purge) -> set[str]:
        """Some of those whose order their producer does not number: its numbers would come again as new ones."""
        store = self._world.store
        by_place = sorted(convoy.key for convoy in store.convoys.values() if convoy.ordering == "place")
        for key in by_place:
            meant = PurgeNamed(what="convoy", name=key, ended_before=which.ended_before)
            await store.purge_named(meant, actor="janitor", limit=self._names.choice((None, 1, 100)))
        return set(by_place) - {convoy.key for convoy in store.convoys.values()}

    def _kinds(self, task_no: int) -> list[str]:
        rows = [row for row in self._world.store.log if row.task_no == task_no]
        events = [event for row in rows for event in _read_events(bytes(row.events))]
        return [event["kind"] for event in events if event["type"] == "status.published"]

    # --- checking
    def check(self) -> list[Violation]:
        """What readers saw: every status of every task at least once, each for the first time in its order."""
        for task in self._world.store.tasks.values():
            self._note_published(task, self._kinds(task.task_no))
        found = {
            task_id: [kind for _, kinds in sorted(runs.items()) for kind in kinds]
            for task_id, runs in self._published.items()
        }
        return [violation for task_id, kinds in found.items() for violation in self._of_task(task_id, kinds)]

    def _note_published(self, task: TaskRow, kinds: list[str]) -> None:
        """Note what a run of a task has published. Its reader knows the task by its id alone."""
        self._published[name_task(task)][task.run] = kinds

    def _of_task(self, task_id: str, kinds: list[str]) -> list[Violation]:
        seen: dict[int, str] = {}
        for number, kind in self._seen[task_id]:
            if kind != "progress":  # it is not counted; ``publishing`` judges what is published
                seen.setdefault(number, kind)
        wanted = dict(enumerate(kinds, 1))
        if list(seen.items()) == list(wanted.items()):
            return []
        return [Violation("I43", task_id, f"its reader saw {seen}, its history published {wanted}")]


_CLOSED = (StepState.FAILED, StepState.WITHDRAWN)
