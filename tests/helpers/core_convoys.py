"""Convoys in a town: a clean history in which everything happens to them, and ways to change it afterwards."""

import asyncio
from functools import cache
from typing import Any

import msgspec
from core_history import APP, FAILURE, LEASE, LIMIT, Commit, Event, Story, Town, request
from core_history import policy as step_policy

from arriero.audit.check import History, find_convoy_differences, find_differences
from arriero.model import ConvoyVerb, TaskRow, Verb
from arriero.model.answers import Claimed
from arriero.model.commands import Advance, Claim, EndByLimit, GatherBatch, HandOver, OperateConvoy
from arriero.model.failures import TaskFailure
from arriero.model.moves import Compensate, Continue, Ending, Hold, Keep, Process, Succeeded
from arriero.model.policies import ConvoyOverrides, ConvoyPolicy, Supervision, TaskPolicy

GAP_WITHIN = 30.0


class Road(Town):
    """A town with convoys. A task's id begins with the name of its convoy: ``wait-1`` is the first of ``wait``."""

    async def place(
        self, task_id: str, sequence: int | None = None, *, end: bool = False, workflow: str = "", **policy: Any
    ) -> None:
        rules = TaskPolicy(LIMIT, Supervision(), convoy=ConvoyPolicy(**{"gap_within": GAP_WITHIN} | policy))
        await self.submit(
            task_id,
            convoy=task_id.rpartition("-")[0],
            sequence=sequence,
            end_of_sequence=end,
            policy=msgspec.json.encode(rules).decode(),
            reply_to=None,
            workflow=workflow or task_id,
            arguments=f'{{"lines": [{task_id.rpartition("-")[2]}]}}' if workflow else "{}",
        )

    async def claim_any(self, workflow: str) -> TaskRow:
        """Claim the task of the workflow whose turn it is."""
        answer = await self.apply(
            Claim(actor="p1", process_no=1, workflows=(workflow,), limit=1, probation=True, app=APP)
        )
        assert isinstance(answer, Claimed)
        (loaded,) = answer.tasks
        return loaded.task

    async def gather(self, workflow: str) -> None:
        """Claim the task whose turn it is, and gather its batch."""
        task = await self.claim_any(workflow)
        assert task.convoy_no is not None
        await self.apply(
            GatherBatch(
                actor="p1",
                task_no=task.task_no,
                process_no=1,
                fence=task.fence,
                revision=task.revision,
                convoy_no=task.convoy_no,
            )
        )

    async def look(self) -> None:
        """Somebody claims, and so decides whose turn it is where that is due."""
        await self.apply(Claim(actor="p1", process_no=1, workflows=(), limit=0, probation=True))

    async def end(self, task_id: str, ending: Ending, hand_over: tuple[str, ...] | None = None) -> None:
        """Claim the task unless it is held, and end it."""
        if self.task(task_id).locked_by is None:
            await self.claim(task_id)
        task = self.task(task_id)
        assert task.locked_by is not None
        await self.apply(
            Advance(
                actor="p1",
                task_no=task.task_no,
                process_no=task.locked_by,
                fence=task.fence,
                revision=task.revision,
                state=task.state,
                unseen_since=task.unseen_since,
                ending=ending,
                convoy_no=task.convoy_no,
                hand_over=None if hand_over is None else HandOver(hand_over),
            )
        )

    async def processed(self, *task_ids: str) -> None:
        for task_id in task_ids:
            await self.end(task_id, Process('"ok"'))

    async def fails(self, task_id: str) -> None:
        await self.end(task_id, Hold(FAILURE))

    async def expire(self, task_id: str) -> None:
        """The task's own limit passes; it is held."""
        self.wait(LIMIT)
        task = self.task(task_id)
        ending = Hold(TaskFailure("limit", "its time has passed", code="limit"))
        await self.apply(
            EndByLimit(
                actor="p1",
                task_no=task.task_no,
                fence=task.fence,
                revision=task.revision,
                state=task.state,
                ending=ending,
                term=self.term,
            )
        )

    async def tell(self, convoy: str, verb: ConvoyVerb, **what: Any) -> None:
        tail = self.store.find_tail(convoy)
        assert tail is not None
        fields: dict[str, Any] = {"by": "ana", "reason": "because", "fence": None}
        await self.apply(OperateConvoy(actor="operator", verb=verb, convoy_no=tail.convoy_no, **(fields | what)))


# --- what happened
async def _in_order(road: Road) -> None:
    """One after the other, one handed over; one is moved to the head, one is cancelled while it waits."""
    for number in range(1, 7):
        await road.place(f"order-{number}")
    await road.end("order-1", Process('"ok"'), ("order-2",))
    await road.tell("order", ConvoyVerb.MOVE_TO_HEAD, task_no=road.number("order-5"))
    await road.operate("order-4", Verb.CANCEL)
    await road.processed("order-2", "order-5", "order-3", "order-6")
    await road.operate("order-1", Verb.COMPENSATE)
    await road.operate("order-4", Verb.RESUBMIT)
    await road.look()
    await road.claim("order-1")
    await road.advance("order-1", ending=Compensate(FAILURE))
    await road.processed("order-4")


async def _waits(road: Road) -> None:
    """The head fails, the key stands still on it until it is mended; once an operator sets it aside instead."""
    for number in range(1, 4):
        await road.place(f"wait-{number}")
    await road.fails("wait-1")
    await road.operate("wait-1", Verb.RESUBMIT)
    await road.processed("wait-1")
    await road.fails("wait-2")
    await road.tell("wait", ConvoyVerb.SKIP)
    await road.operate("wait-2", Verb.RESUBMIT)
    await road.processed("wait-3", "wait-2")
    await road.place("wait-4")
    await road.fails("wait-4")
    await road.tell("wait", ConvoyVerb.SET, policy=ConvoyOverrides(head="skip"))


async def _skips(road: Road) -> None:
    for number in range(1, 3):
        await road.place(f"skip-{number}", head="skip")
    await road.fails("skip-1")
    await road.processed("skip-2")
    await road.operate("skip-1", Verb.RESUBMIT)
    await road.look()
    await road.processed("skip-1")


async def _parks(road: Road) -> None:
    """Parked by its policy, mended while it is, released; then parked by an operator."""
    for number in range(1, 4):
        await road.place(f"park-{number}", head="park")
    await road.fails("park-1")
    await road.operate("park-1", Verb.RESUBMIT)
    await road.tell("park", ConvoyVerb.RELEASE)
    await road.processed("park-1")
    await road.tell("park", ConvoyVerb.PARK)
    await road.processed("park-2")
    await road.tell("park", ConvoyVerb.RELEASE)
    await road.processed("park-3")


async def _by_sequence(road: Road) -> None:
    """A gap that closes late; one that is skipped, and what is late then; one that an operator skips; the end mark."""
    await road.place("gap-2", 2)
    await road.look()
    road.wait(GAP_WITHIN)
    await road.look()  # an operator is told
    await road.place("gap-1", 1)
    await road.look()
    await road.processed("gap-1", "gap-2")
    await road.place("gap-4", 4, gap="skip")
    await road.look()
    road.wait(GAP_WITHIN)
    await road.look()
    await road.place("gap-3", 3)
    await road.processed("gap-4")
    await road.operate("gap-3", Verb.RESUBMIT)
    await road.look()
    await road.processed("gap-3")
    await road.place("gap-6", 6, end=True)
    await road.look()
    await road.tell("gap", ConvoyVerb.SKIP)
    await road.processed("gap-6")


async def _parks_at_a_gap(road: Road) -> None:
    """Nobody sends what is missing, until somebody does; what waits behind it is cancelled."""
    await road.place("late-2", 2, gap="park")
    await road.place("late-3", 3, gap="park")
    await road.look()
    road.wait(GAP_WITHIN)
    await road.look()
    await road.place("late-1", 1)
    await road.operate("late-2", Verb.CANCEL)
    await road.tell("late", ConvoyVerb.RELEASE)
    await road.processed("late-1", "late-3")


async def _fails_while_it_waits(road: Road) -> None:
    """Judged when its turn comes: the key stands still on the one, and passes over the other."""
    for number in range(1, 4):
        await road.place(f"idle-{number}", head="skip" if number == 3 else "wait")
    await road.claim("idle-1")
    await road.expire("idle-2")
    await road.expire("idle-3")
    await road.processed("idle-1")
    await road.operate("idle-2", Verb.RESUBMIT)
    await road.processed("idle-2")


async def _continues(road: Road) -> None:
    """The first one continues in another run, which has its turn, before the second one."""
    for number in range(1, 3):
        await road.place(f"on-{number}")
    policy = road.task("on-1").policy
    await road.end("on-1", Continue("{}", policy, LIMIT))
    await road.processed("on-1", "on-2")


async def _wakes_nobody(road: Road) -> None:
    """A report comes for a task that waits for its turn again."""
    await road.place("wake-1", head="skip")
    await road.place("wake-2")
    await road.claim("wake-1")
    charge, ship = request("charge"), request("ship", policy=step_policy(attempts=2))
    await road.advance("wake-1", opened=(charge, ship), ending=Keep())
    await road.fails("wake-1")
    await road.claim("wake-2")
    await road.operate("wake-1", Verb.RESUBMIT)
    await road.report("wake-1", 1, Succeeded("1"))
    await road.report("wake-1", 2, Succeeded("2"))
    await road.processed("wake-2", "wake-1")


async def _in_batches(road: Road) -> None:
    """One batch waits and becomes full, is undone and runs again; the next one begins when its time is over."""
    batches = {"workflow": "batch", "handle_batch": 3, "batch_within": 30.0}

    async def place(number: int) -> None:
        await road.place(f"batch-{number}", **batches)

    async def gather() -> None:
        await road.gather("batch")

    await place(1)
    await gather()
    for number in (2, 3, 4, 5):
        await place(number)
    await road.look()
    await gather()
    await road.processed("batch-1")
    await gather()
    road.wait(30.0)
    await gather()
    await road.operate("batch-1", Verb.COMPENSATE)
    await road.processed("batch-4")
    await road.claim_any("batch")
    await road.end("batch-1", Compensate(FAILURE))
    await road.operate("batch-1", Verb.RESUBMIT)
    await road.look()
    await road.claim_any("batch")
    await road.processed("batch-1")


async def happens() -> Road:
    road = Road()
    for number in (1, 2, 3):
        assert await road.store.register(f"p{number}", LEASE) == number
    await road.lead(1)
    for chapter in (
        _in_order,
        _waits,
        _skips,
        _parks,
        _by_sequence,
        _parks_at_a_gap,
        _fails_while_it_waits,
        _wakes_nobody,
        _in_batches,
        _continues,
    ):
        await chapter(road)
    return road


@cache
def everything() -> Road:
    """The road after all of it; not to be changed. Its history can be read."""
    return asyncio.run(happens())


def folded(road: Road) -> History:
    history = History()
    for row in list(road.store.iterate_history()):
        history.add(row)
    return history


def disagreements(road: Road) -> list[str]:
    """Where the tables say something else than the history."""
    history = folded(road)
    history.end()
    found = [text for no, task in history.tasks.items() for text in find_differences(task, road.store.load_as_is(no))]
    return found + [text for row in road.store.convoys.values() for text in find_convoy_differences(history, row)]


class Tale(Story):
    """A copy of the clean history. The name of a convoy stands for its own stream."""

    def __init__(self) -> None:
        self.commits = [
            Commit(row.task_no, row.task_id, row.at, row.actor, msgspec.json.decode(row.events))
            for row in list(everything().store.iterate_history())
        ]

    def numbered(self, convoy: str) -> list[Event]:
        """All numbered events of a convoy."""
        of_convoy = (
            commit for commit in self.commits if commit.task.rpartition("-")[0] == convoy or commit.task == convoy
        )
        return [event for commit in of_convoy for event in commit.events if "number" in event]

    def leave_out(self, task: str, kind: str, nth: int = 0, /, **fields: Any) -> None:
        """Take an event out, and number what comes after it as if it had never been."""
        number = self.remove(task, kind, nth, **fields)["number"]
        for event in self.numbered(task.rpartition("-")[0] or task):
            event["number"] -= event["number"] > number

    def put_before(self, commit: Commit, other: Commit) -> None:
        """Move a commit."""
        self.commits.remove(commit)
        commit.at = other.at
        self.commits.insert(self.commits.index(other), commit)
