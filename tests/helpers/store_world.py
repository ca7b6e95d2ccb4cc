"""What the store suite speaks in: short forms of the commands, a clock that the test sets, checks after each step."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from arriero.events.base import START, fits_link
from arriero.model import STEP_BITS, Instant, Loaded, StepKind, StepRow, TaskRow, later
from arriero.model.answers import Answer, Applied, Claimed, Dispatch, Refusal, Submitted, Taken
from arriero.model.commands import Advance, AnyCommand, Claim, FreeTask, Recover, Report, Submit, Take
from arriero.model.failures import StepFailure, TaskFailure
from arriero.model.moves import Delivered, Ending, GaveUp, Keep, NewStep, Outcome, Reported, RetryAsked, Succeeded
from arriero.model.policies import Retry, StepPolicy, Supervision, TaskPolicy
from arriero.store.contract import SUPERVISOR_LEASE
from arriero.store.state_store import StateStore

NOON = 1_700_000_000_000_000
COMPLETE_WITHIN = 10.0
LEASE = 3.0
STEP_POLICY = msgspec.json.encode(StepPolicy(COMPLETE_WITHIN, None, Retry(), Supervision())).decode()
TASK_POLICY = msgspec.json.encode(TaskPolicy(None, Supervision())).decode()
ALL = ("charge", "reserve", "ship")
DONE = Succeeded('"done"')
DECLINED = StepFailure("permanent", "declined", "declined")
UNSURE = StepFailure("unknown", "connection lost")
FAILED = TaskFailure("step", "charge: declined", "charge", "declined")

Event = dict[str, Any]


class TestClock:
    """The store's clock, moved by hand."""

    __test__ = False

    def __init__(self) -> None:
        self.at = NOON

    def __call__(self) -> Instant:
        return Instant(self.at)

    def move(self, seconds: float) -> Instant:
        self.at = later(Instant(self.at), seconds)
        return Instant(self.at)

    def to(self, instant: Instant | None) -> None:
        assert instant is not None
        self.at = instant


def submission(task_id: str = "order-1", **changes: Any) -> Submit:
    fields: dict[str, Any] = {
        "actor": "client",
        "task_id": task_id,
        "workflow": "fulfil",
        "arguments": '{"pieces":2}' if changes.get("body_hash", "body") == "body" else '{"pieces":3}',
        "body_hash": "body",
        "policy": TASK_POLICY,
        "priority": 5,
        "delay": 0.0,
        "complete_within": None,
        "seed": 7,
    }
    return Submit(**(fields | changes))


# Tasks that are known, and what of another submission under such an id differs from it first.
KNOWN: dict[str, dict[str, Any]] = {
    "free": {},
    "placed": {"convoy": "k"},
    "numbered": {"convoy": "n", "sequence": 1},
    "last": {"convoy": "over", "end_of_sequence": True},
    "of-shop": {"app": "shop"},
}
OTHERWISE: list[tuple[str, dict[str, Any], str]] = [
    ("free", {"workflow": "another"}, "workflow"),
    ("free", {"body_hash": "another", "arguments": '{"pieces":3}', "convoy": "k"}, "body"),
    ("free", {"convoy": "never used"}, "convoy"),
    ("free", {"convoy": "never used", "sequence": 1}, "convoy"),
    ("free", {"convoy": "k"}, "convoy"),
    ("placed", {"convoy": None}, "convoy"),
    ("placed", {"convoy": "never used"}, "convoy"),
    ("placed", {"convoy": "n", "sequence": 1}, "convoy"),
    ("placed", {"sequence": 1}, "sequence"),
    ("placed", {"end_of_sequence": True}, "end mark"),
    ("numbered", {"sequence": None}, "sequence"),
    ("numbered", {"sequence": 2}, "sequence"),
    ("numbered", {"convoy": "never used"}, "convoy"),
    ("numbered", {"convoy": "over"}, "convoy"),
    ("numbered", {"end_of_sequence": True}, "end mark"),
    ("last", {"convoy": "never used"}, "convoy"),
    ("of-shop", {"app": "travel"}, "App"),
    ("of-shop", {"app": "travel", "body_hash": "another", "arguments": '{"pieces":3}'}, "App"),
    ("of-shop", {"app": "travel", "workflow": "another"}, "workflow"),
]
ALIKE: list[dict[str, Any]] = [
    {},
    {"priority": 9},
    {"delay": 5.0},
    {"complete_within": 9.0},
    {"reply_to": "web"},
    {"seed": 1},
]


def step(name: str = "charge", key: str = "#1", **changes: Any) -> NewStep:
    fields: dict[str, Any] = {
        "kind": StepKind.STEP,
        "name": name,
        "key": key,
        "agent": "payments",
        "arguments": '{"amount":5}',
        "policy": STEP_POLICY,
        "idempotency_key": f"{name}{key}",
        "compensation": STEP_POLICY,
        "complete_within": COMPLETE_WITHIN,
    }
    return NewStep(**(fields | changes))


def timer(fire_at: int, key: str = "#1") -> NewStep:
    return NewStep(kind=StepKind.TIMER, name="sleep", key=key, fire_at=Instant(fire_at))


def undo_of(undone: StepRow, **changes: Any) -> NewStep:
    undo = '{"outcome":"completed","forward_key":"k","result":"1"}'
    fields = {"undoes": undone.step_no, "undo": undo, "compensation": None, "idempotency_key": f"undo-{undone.ordinal}"}
    return step(undone.name, undone.key, kind=StepKind.COMPENSATION, **(fields | changes))


def retry_at(not_before: int, *, in_doubt: bool = False, cool_off: bool = False) -> RetryAsked:
    return RetryAsked(UNSURE, in_doubt, Instant(not_before), cool_off)


def gave_up(*, in_doubt: bool = False) -> GaveUp:
    return GaveUp(DECLINED, in_doubt)


class World:
    """A store, its clock, and what processes would ask of it. ``looks_often``: at the history after each command."""

    def __init__(self, store: StateStore, clock: TestClock, *, looks_often: bool = True) -> None:
        self.store = store
        self.clock = clock
        self._looks_often = looks_often
        self.keys_are_damaged = False  # of limits: what waits under them is not asked about

    # --- asking
    async def submit(self, task_id: str = "order-1", **changes: Any) -> int:
        (answer,) = await self.store.submit([submission(task_id, **changes)])
        assert isinstance(answer, Submitted)
        await self._look()
        return answer.task_no

    async def apply(self, command: AnyCommand) -> Answer:
        (answer,) = await self.store.apply([command])
        await self._look()
        return answer

    async def written(self, command: AnyCommand) -> Applied:
        answer = await self.apply(command)
        assert isinstance(answer, Applied), answer
        kept = await self.load(answer.task.task_no)
        assert answer.task == kept.task
        assert set(answer.steps) <= set(kept.steps)
        return answer

    async def refused(self, command: AnyCommand, verdict: str) -> None:
        """The command is refused, and nothing but the history of a report shows that it came."""
        before = await self.rows()
        answer = await self.apply(command)
        assert isinstance(answer, Refusal), answer
        assert answer.verdict == verdict
        assert _without_links(await self.rows()) == _without_links(before)

    async def process(self, instance: str = "p1") -> int:
        return await self.store.register(instance, LEASE)

    async def lead(self, process_no: int) -> int:
        return (await self.store.acquire_lease(SUPERVISOR_LEASE, process_no, "leader", 60.0)).term

    def claim_command(self, process_no: int = 1, **changes: Any) -> Claim:
        fields = {"actor": "p", "process_no": process_no, "workflows": ("fulfil",), "limit": 100, "probation": True}
        return Claim(**(fields | changes))

    async def claim(self, process_no: int = 1, **changes: Any) -> list[Loaded]:
        answer = await self.apply(self.claim_command(process_no, **changes))
        assert isinstance(answer, Claimed)
        for loaded in answer.tasks:
            assert loaded == await self.load(loaded.task.task_no)
        return list(answer.tasks)

    async def claimed_ids(self, process_no: int = 1, **changes: Any) -> list[str]:
        return [loaded.task.task_id for loaded in await self.claim(process_no, **changes)]

    async def held(self, task_id: str = "order-1", process_no: int = 1, **changes: Any) -> TaskRow:
        """A task submitted and claimed."""
        await self.submit(task_id, **changes)
        workflows = (changes.get("workflow", "fulfil"),)
        (loaded,) = await self.claim(process_no, limit=1, workflows=workflows)
        return loaded.task

    async def take(self, process_no: int = 1, **changes: Any) -> list[Dispatch]:
        fields: dict[str, Any] = {"room": (("payments", 100),), "names": ALL, "probation": None}
        answer = await self.apply(Take(actor="p", process_no=process_no, **(fields | changes)))
        assert isinstance(answer, Taken)
        for dispatch in answer.dispatches:
            assert dispatch.step == await self.step(dispatch.step.step_no)
        return list(answer.dispatches)

    def advance_command(
        self,
        task: TaskRow,
        delivered: Sequence[Delivered] = (),
        opened: Sequence[NewStep] = (),
        ending: Ending = Keep(),
        **changes: Any,
    ) -> Advance:
        fields: dict[str, Any] = {
            "actor": "p",
            "task_no": task.task_no,
            "process_no": task.locked_by,
            "fence": task.fence,
            "revision": task.revision,
            "state": task.state,
            "delivered": tuple(delivered),
            "opened": tuple(opened),
            "ending": ending,
            "convoy_no": task.convoy_no,
            "unseen_since": task.unseen_since,
        }
        return Advance(**(fields | changes))

    async def advance(
        self,
        task: TaskRow,
        delivered: Sequence[Delivered] = (),
        opened: Sequence[NewStep] = (),
        ending: Ending = Keep(),
        **changes: Any,
    ) -> Applied:
        return await self.written(self.advance_command(task, delivered, opened, ending, **changes))

    async def opened(self, task: TaskRow, *new: NewStep) -> tuple[TaskRow, list[StepRow]]:
        answer = await self.advance(task, opened=new)
        return answer.task, list(answer.steps)

    async def running(self, task: TaskRow, *names: str) -> tuple[TaskRow, list[StepRow]]:
        """The task after its code opened steps that its own process took at once."""
        return await self.opened(task, *(step(name, take=True) for name in names))

    def report_command(self, of: StepRow, outcome: Outcome = DONE, process_no: int = 1, **changes: Any) -> Report:
        fields = {"step_no": of.step_no, "fence": of.fence, "outcome": outcome, "delivered_at": self.clock()}
        return Report(actor="agent", process_no=process_no, report=Reported(**(fields | changes)))

    async def report(self, of: StepRow, outcome: Outcome = DONE, process_no: int = 1, **changes: Any) -> Applied:
        return await self.written(self.report_command(of, outcome, process_no, **changes))

    def reported(self, of: StepRow, outcome: Outcome = DONE, **changes: Any) -> Reported:
        fields = {"step_no": of.step_no, "fence": of.fence, "outcome": outcome, "delivered_at": self.clock()}
        return Reported(**(fields | changes))

    def recover_command(self, of: StepRow, term: int, outcome: Outcome | None = None, **changes: Any) -> Recover:
        fields = {"step_no": of.step_no, "fence": of.fence, "starved": False, "term": term}
        fields["outcome"] = outcome or retry_at(self.clock.at, in_doubt=True)
        return Recover(actor="leader", **(fields | changes))

    def free_command(self, task: TaskRow, steps: Iterable[StepRow] = (), **changes: Any) -> FreeTask:
        fields: dict[str, Any] = {
            "task_no": task.task_no,
            "fence": task.fence,
            "steps": tuple((one.step_no, one.fence) for one in steps),
            "lost_by": task.locked_by,
            "stuck_since": None,
            "charged": True,
            "hold": None,
        }
        return FreeTask(actor="other", **(fields | changes))

    async def lose(self, process_no: int) -> None:
        await self.store.retire(process_no, by="other", known_dead=True)

    async def suspects(self, *task_ids: str, **changes: Any) -> list[int]:
        """Tasks that were submitted and lost two holders each: they are on probation; answers their numbers."""
        task_nos = [await self.submit(task_id, **changes) for task_id in task_ids]
        for number in range(3):  # the tests' own processes are 1 to 3; a retired number never claims again
            await self.process(f"sound-{task_ids[0]}-{number}")
        for time in range(2):
            process_no = await self.process(f"doomed-{task_ids[0]}-{time}")
            claimed = await self.claim(process_no)
            assert [loaded.task.task_no for loaded in claimed] == task_nos
            await self.lose(process_no)
            for loaded in claimed:
                await self.written(self.free_command(loaded.task))
        return task_nos

    # --- looking
    async def load(self, task_no: int) -> Loaded:
        loaded = await self.store.load(task_no)
        assert loaded is not None
        return loaded

    async def task(self, task_no: int) -> TaskRow:
        return (await self.load(task_no)).task

    async def step(self, step_no: int) -> StepRow:
        found = (await self.load(step_no >> STEP_BITS)).find_step(step_no)
        assert found is not None
        return found

    async def rows(self) -> list[Loaded]:
        return [await self.load(task.task_no) for task in await self.store.list_tasks(limit=10_000)]

    async def events(self, task_no: int = 1) -> list[Event]:
        return [event for row in await self.links(task_no) for event in row]

    async def links(self, task_no: int = 1) -> list[list[Event]]:
        return [msgspec.json.decode(row.events) async for row in self.store.history(task_no)]

    async def last_events(self, task_no: int = 1) -> list[Event]:
        return (await self.links(task_no))[-1]

    async def _look(self) -> None:
        if self._looks_often:
            await self.check_chains()
            await self.check_waiting_keys()

    async def check_waiting_keys(self) -> None:
        """Whatever a command did: no request waits under keys of limits that no Take looks at."""
        store: Any = self.store
        assert self.keys_are_damaged or await store._read(lambda rows: rows.select_missing_keys(10)) == []

    async def check_chains(self) -> None:
        """Numbers that grow, links without a gap, hashes over what is stored, the last one in the task's row."""
        heads: defaultdict[int, tuple[int, str]] = defaultdict(lambda: (0, START))
        number = 0
        async for row in self.store.history():
            assert row.no > number
            number = row.no
            link, head = heads[row.task_no]
            assert row.link == link + 1
            assert fits_link(row.hash, head, row.task_no, row.link, row.at, row.actor, bytes(row.events).decode())
            heads[row.task_no] = (row.link, row.hash)
        for task in await self.store.list_tasks(limit=10_000):
            assert (task.link, task.head) == heads[task.task_no]


def _without_links(rows: list[Loaded]) -> list[Loaded]:
    replace = msgspec.structs.replace
    return [replace(loaded, task=replace(loaded.task, link=0, head="")) for loaded in rows]


def kinds(events: list[Event]) -> list[str]:
    return [event["type"] for event in events]
