"""A clean history in which every kind of event occurs, made by the memory store; and ways to change it afterwards.

A changed history is chained anew, so that its hashes are in order and only what was changed can show.
"""

import asyncio
import copy
from collections.abc import Callable
from functools import cache
from typing import Any

import msgspec
from core_schedules import live_through_a_schedule

from arriero.audit.check import History as Fold
from arriero.audit.check import find_differences
from arriero.core.forks import build_fork
from arriero.declare.agent_parts import mark_probe
from arriero.events.base import START, link_hash
from arriero.model import STEP_BITS, HistoryRow, Instant, StepKind, TaskRow, TaskState, Verb, later
from arriero.model.agents import AgentVerb, LimitPolicy, encode_limits
from arriero.model.answers import APPROVAL_NEEDED, Answer, BreakerApplied, Claimed, Refusal, Submitted, Taken
from arriero.model.commands import (
    Advance,
    AnyCommand,
    AssignApp,
    BeginProbe,
    BeginTry,
    Claim,
    DeliverAttempt,
    EndByLimit,
    EndProbe,
    ExtendAttempt,
    Fork,
    FreeTask,
    NoteChildEnd,
    Operate,
    OperateAgent,
    Recover,
    ReleaseAttempt,
    Report,
    SaveCheckpoint,
    SendSignal,
    Submit,
    Take,
    TripBreaker,
)
from arriero.model.failures import StepFailure, TaskFailure
from arriero.model.moves import (
    BeginUndo,
    ChildEnded,
    Compensate,
    Continue,
    Ending,
    Fired,
    GaveUp,
    Hold,
    Keep,
    NewStep,
    NextUndo,
    Outcome,
    PlanUndo,
    Process,
    PutDown,
    Reported,
    RetryAsked,
    Signalled,
    Succeeded,
)
from arriero.model.policies import ONE_TRY, Breaker, ChildOptions, Retry, StepPolicy, Supervision, TaskPolicy
from arriero.model.processes import NO_VERSIONS, ProcessAbout, Versions
from arriero.model.workflow_pauses import OperateWorkflow, PauseState, WorkflowPauseRow
from arriero.store.contract import SUPERVISOR_LEASE, Purge
from arriero.store.memory import MemoryStore

NOON = 1_700_000_000_000_000
SECOND = 1_000_000
COMPLETE_WITHIN = 10.0
LIMIT = 600.0  # of a whole task
LEASE = 3.0
AGENT = "payments"
GATE = "gate"  # the Agent of a service that fails
METER = "meter"  # the Agent of a service with limits
METER_LIMITS = encode_limits(
    (
        LimitPolicy(name="concurrent", kind="concurrent", most=1),
        LimitPolicy(name="rate", kind="rate", most=2, per=1.0),
    )
)
APP = "shop"
NAMES = ("look", "charge", "reserve", "ship")
REFUSED = StepFailure("permanent", "declined", "declined")
UNSURE = StepFailure("unknown", "connection lost")
BUSY = StepFailure("transient", "busy")
EXPIRED = StepFailure("expired", "no report in time")
FAILURE = TaskFailure("step", "charge: declined", "charge", "declined")

UNDO = '{"outcome":"completed","forward_key":"k","result":null}'
Event = dict[str, Any]


def policy(attempts: int = 1, rounds: int = 1) -> str:
    """A step's policy as it stands in its row."""
    return msgspec.json.encode(
        StepPolicy(COMPLETE_WITHIN, None, Retry(), Supervision(attempts=attempts, rounds=rounds, cool_off=60.0))
    ).decode()


def request(name: str, *, undoable: bool = True, policy: str = policy(), **changes: Any) -> NewStep:
    """A step that its process takes at once."""
    fields: dict[str, Any] = {
        "kind": StepKind.STEP,
        "name": name,
        "key": "#1",
        "agent": AGENT,
        "arguments": '{"amount":5}',
        "policy": policy,
        "compensation": policy if undoable else None,
        "complete_within": COMPLETE_WITHIN,
        "take": True,
    }
    return NewStep(**(fields | changes))


NEWEST = {"upgraded": ("3", "2", "1")}
BLUE = {"upgraded": ("2@blue", "2")}


class Town:
    """A store, its clock, and the processes that work on it: 1 and 3 live, 2 dies."""

    def __init__(self) -> None:
        self.at = NOON
        self.store = MemoryStore(lambda: Instant(self.at), "town")
        self.term = 0

    def wait(self, seconds: float = 1.0) -> None:
        self.at = later(Instant(self.at), seconds)

    async def apply(self, command: AnyCommand) -> Answer:
        self.wait(0.001)
        (answer,) = await self.store.apply([command])
        assert not isinstance(answer, Refusal), answer
        return answer

    def number(self, task_id: str) -> int:
        return self.store.numbers[task_id]

    def task(self, task_id: str) -> TaskRow:
        return self.store.tasks[self.number(task_id)]

    # --- what processes ask
    async def submit(self, task_id: str, **changes: Any) -> None:
        """A task whose workflow has its id for a name, so that it alone can be claimed."""
        self.wait(0.001)
        fields: dict[str, Any] = {
            "actor": "client",
            "task_id": task_id,
            "workflow": task_id,
            "arguments": "{}",
            "body_hash": "body",
            "policy": msgspec.json.encode(TaskPolicy(LIMIT, Supervision())).decode(),
            "priority": 5,
            "delay": 0.0,
            "complete_within": LIMIT,
            "seed": 7,
            "reply_to": f"mail-{task_id}",
        }
        (answer,) = await self.store.submit([Submit(**(fields | changes))])
        assert isinstance(answer, Submitted)
        assert answer.created

    async def claim(self, task_id: str, process_no: int = 1, versions: Versions = NO_VERSIONS) -> None:
        asked = {"workflows": (task_id,), "limit": 1, "probation": True, "app": APP, "versions": versions}
        answer = await self.apply(Claim(actor=f"p{process_no}", process_no=process_no, **asked))
        assert isinstance(answer, Claimed)
        assert [loaded.task.task_id for loaded in answer.tasks] == [task_id]

    async def take(self, process_no: int = 1) -> None:
        """All that is due."""
        answer = await self.apply(
            Take(actor=f"p{process_no}", process_no=process_no, room=((AGENT, 9),), names=NAMES, probation=None)
        )
        assert isinstance(answer, Taken)
        assert answer.dispatches

    def reported(self, task_id: str, ordinal: int, outcome: Outcome) -> Reported:
        step_no = self.step_no(task_id, ordinal)
        step = self.store.step(step_no)
        assert step is not None
        return Reported(step_no, step.fence, outcome, Instant(self.at))

    def step_no(self, task_id: str, ordinal: int) -> int:
        return self.number(task_id) << STEP_BITS | ordinal

    async def advance(
        self,
        task_id: str,
        *delivered: tuple[int, Outcome | None],
        taken: tuple[Signalled | ChildEnded, ...] = (),
        opened: tuple[NewStep, ...] = (),
        ending: Ending,
    ) -> None:
        """``delivered``: ordinals and outcomes; None: a timer."""
        task = self.task(task_id)
        assert task.locked_by is not None
        news: list[Reported | Fired] = [
            Fired(self.step_no(task_id, ordinal), Instant(self.at))
            if outcome is None
            else self.reported(task_id, ordinal, outcome)
            for ordinal, outcome in delivered
        ]
        keyed = tuple(
            new
            if new.kind in (StepKind.TIMER, StepKind.CHILD) or new.reopens is not None
            else msgspec.structs.replace(new, idempotency_key=self.key(task, new))
            for new in opened
        )
        await self.apply(
            Advance(
                actor=f"p{task.locked_by}",
                task_no=task.task_no,
                process_no=task.locked_by,
                fence=task.fence,
                revision=task.revision,
                state=task.state,
                unseen_since=task.unseen_since,
                delivered=(*news, *taken),
                opened=keyed,
                ending=ending,
            )
        )

    @staticmethod
    def key(task: TaskRow, new: NewStep) -> str:
        return f"{task.task_id}-{task.incarnation}-{new.kind}-{new.name}"

    async def report(self, task_id: str, ordinal: int, outcome: Outcome, process_no: int = 1) -> Answer:
        """By an Agent in a process that does not hold the task; what it answers may be a refusal."""
        self.wait(0.001)
        report = self.reported(task_id, ordinal, outcome)
        (answer,) = await self.store.apply([Report(actor="agent", process_no=process_no, report=report)])
        return answer

    def undo_of(self, task_id: str, *ordinals: int) -> PlanUndo:
        """The plan, in the order of these steps; its first action is taken at once."""
        task = self.task(task_id)
        planned = []
        for ordinal in ordinals:
            step = self.store.step(self.step_no(task_id, ordinal))
            assert step is not None
            new = request(step.name, undoable=False, kind=StepKind.COMPENSATION, undoes=step.step_no, undo=UNDO)
            planned.append(msgspec.structs.replace(new, idempotency_key=self.key(task, new), policy=policy(attempts=2)))
        return PlanUndo(FAILURE, tuple(planned))

    def next_undo(self, task_id: str, ordinal: int) -> NextUndo:
        return NextUndo(self.step_no(task_id, ordinal), True, COMPLETE_WITHIN)

    async def operate(self, task_id: str, verb: Verb, **what: Any) -> None:
        await self.apply(self._verb(task_id, verb, **what))

    async def approve(self, task_id: str, verb: Verb, by: str) -> None:
        """The first of two persons asks."""
        self.wait(0.001)
        (answer,) = await self.store.apply([self._verb(task_id, verb, by=by, persons=2)])
        assert isinstance(answer, Refusal)
        assert answer.verdict == APPROVAL_NEEDED

    def _verb(self, task_id: str, verb: Verb, **what: Any) -> Operate:
        task = self.task(task_id)
        fields: dict[str, Any] = {"by": "ana", "reason": "because", "store_id": "town", "incarnation": task.incarnation}
        return Operate(actor="operator", verb=verb, task_no=task.task_no, **(fields | what))

    async def lead(self, process_no: int) -> None:
        self.wait(0.001)
        row = await self.store.acquire_lease(SUPERVISOR_LEASE, process_no, f"p{process_no}", 1e6)
        assert row.holder == process_no
        self.term = row.term


# --- what happened
async def _processed(town: Town) -> None:
    """Two steps and a timer; one step fails twice before it succeeds; one report comes again."""
    await town.submit("plain")
    await town.claim("plain")
    stubborn = request("reserve", undoable=False, policy=policy(attempts=2, rounds=2))
    pause = NewStep(kind=StepKind.TIMER, name="sleep", key="#1", fire_at=later(Instant(town.at), 30))
    await town.advance("plain", opened=(request("charge", undoable=False), stubborn, pause), ending=Keep())
    await town.report("plain", 1, Succeeded('"done"'))
    await town.advance("plain", (2, RetryAsked(BUSY, False, later(Instant(town.at), 1))), ending=Keep())
    town.wait(2)
    await town.take()
    await town.advance("plain", (2, RetryAsked(BUSY, False, later(Instant(town.at), 60), True)), ending=PutDown(None))
    town.wait(61)
    await town.take(3)
    await town.report("plain", 2, Succeeded('"done"'), 3)
    await town.claim("plain", 3)
    await town.advance("plain", (3, None), ending=Process('"ok"'))
    assert isinstance(await town.report("plain", 1, Succeeded('"done"')), Refusal)


async def _undone_and_run_anew(town: Town) -> None:
    await town.submit("undone")
    await town.claim("undone")
    opened = (request("charge"), request("reserve"), request("ship"), request("look", undoable=False, effect_free=True))
    await town.advance("undone", opened=opened, ending=Keep())
    await town.advance(
        "undone", (1, Succeeded("1")), (2, Succeeded("2")), (3, GaveUp(UNSURE, True)), ending=BeginUndo(FAILURE)
    )
    await town.advance("undone", (4, Succeeded("4")), ending=town.undo_of("undone", 3, 2, 1))
    await town.advance("undone", (5, Succeeded("null")), ending=town.next_undo("undone", 6))
    await town.advance("undone", (6, Succeeded("null")), ending=town.next_undo("undone", 7))
    await town.advance("undone", (7, Succeeded("null")), ending=Compensate(FAILURE))
    await town.operate("undone", Verb.RESUBMIT)
    await town.claim("undone")
    await town.advance("undone", opened=(request("charge"),), ending=Keep())
    await town.advance("undone", (8, Succeeded("1")), ending=Process('"ok"'))


async def _held_and_mended(town: Town) -> None:
    """Held; resubmitted with other arguments; undone by hand; that failed; resubmitted; undone."""
    await town.submit("held")
    await town.claim("held")
    look = request("look", undoable=False, effect_free=True)
    await town.advance("held", opened=(look, request("charge")), ending=Keep())
    await town.advance("held", (1, Succeeded("1")), (2, GaveUp(REFUSED, False)), ending=Hold(_redo(2)))
    await town.operate("held", Verb.RESUBMIT, step=2, arguments='{"amount":4}')
    await town.claim("held")
    again = request("charge", reopens=town.step_no("held", 2))
    await town.advance("held", opened=(again,), ending=Keep())
    await town.advance("held", (2, Succeeded("2")), ending=Process('"ok"'))
    await town.approve("held", Verb.COMPENSATE, "bo")
    await town.operate("held", Verb.COMPENSATE, persons=2)
    await town.claim("held")
    await town.advance("held", ending=town.undo_of("held", 2))
    await town.advance("held", (3, GaveUp(REFUSED, False)), ending=Hold(_undo_failed()))
    await town.operate("held", Verb.RESUBMIT)
    await town.claim("held")
    await town.advance("held", ending=town.next_undo("held", 3))
    await town.advance("held", (3, Succeeded("null")), ending=Compensate(FAILURE))


def _redo(*ordinals: int) -> TaskFailure:
    return msgspec.structs.replace(FAILURE, redo=ordinals)


def _undo_failed() -> TaskFailure:
    return TaskFailure("undo", "the undo failed", "charge", "undo_failed", began_by=FAILURE)


async def _in_the_hands_of_people(town: Town) -> None:
    """Extended, adjusted, paused, resumed, answered both ways, cancelled; its undo is parked, and answered by hand."""
    await town.submit("patient")
    await town.claim("patient")
    twice = policy(attempts=2)
    await town.advance(
        "patient", opened=(request("charge", policy=twice), request("reserve"), request("ship")), ending=Keep()
    )
    await town.operate("patient", Verb.EXTEND, within=2 * LIMIT)
    await town.operate("patient", Verb.ADJUST, within=3 * LIMIT, step=1, limits='{"attempts":4,"cool_off":61.0}')
    await town.operate("patient", Verb.PAUSE)
    await town.operate("patient", Verb.TAG, tags='{"tenant":"acme"}')
    await town.report("patient", 1, RetryAsked(UNSURE, True, later(Instant(town.at), 1)))
    await town.report("patient", 3, Succeeded("3"))
    await town.operate("patient", Verb.RESUME)
    await town.operate("patient", Verb.ANSWER, step=1, did_not_happen=True)
    await town.operate("patient", Verb.ANSWER, step=2, result='"by hand"')
    await town.operate("patient", Verb.CANCEL)
    await town.claim("patient")
    plan = town.undo_of("patient", 3, 2)
    waits = msgspec.structs.replace(plan.planned[0], take=False)
    await town.advance("patient", ending=PlanUndo(FAILURE, (waits, *plan.planned[1:])))
    await town.advance("patient", ending=Hold(_undo_failed()))
    await town.operate("patient", Verb.ANSWER, step=4)
    await town.operate("patient", Verb.RESUBMIT)
    await town.claim("patient")
    await town.advance("patient", ending=town.next_undo("patient", 5))
    await town.advance("patient", (5, Succeeded("null")), ending=Compensate(FAILURE))


async def _lost_and_expired(town: Town) -> None:
    """Its process dies, then its attempt expires; nobody wants to be told of it."""
    await town.submit("lost", reply_to=None)
    await town.claim("lost", 2)
    await town.advance("lost", opened=(request("charge", policy=policy(attempts=3)),), ending=Keep())
    await town.store.retire(2, by="p1", known_dead=True)
    held = (town.step_no("lost", 1), 1)
    await town.apply(
        FreeTask(
            actor="p1",
            task_no=town.number("lost"),
            fence=1,
            steps=(held,),
            lost_by=2,
            stuck_since=None,
            charged=True,
            hold=None,
        )
    )
    await town.claim("lost")
    await town.take()
    town.wait(COMPLETE_WITHIN + 1)
    step = town.store.step(town.step_no("lost", 1))
    assert step is not None
    outcome = RetryAsked(EXPIRED, True, Instant(town.at))
    await town.apply(
        Recover(actor="p3", step_no=step.step_no, fence=step.fence, starved=False, outcome=outcome, term=town.term)
    )
    await town.take()
    await town.report("lost", 1, Succeeded("1"))
    await town.advance("lost", ending=Process('"ok"'))


async def _past_its_limit(town: Town) -> None:
    await town.submit("limited")
    town.wait(LIMIT)
    task = town.task("limited")
    ending = Hold(TaskFailure("limit", "its time has passed", code="limit"))
    await town.apply(
        EndByLimit(
            actor="p3",
            task_no=task.task_no,
            fence=task.fence,
            revision=task.revision,
            state=task.state,
            ending=ending,
            term=town.term,
        )
    )


async def _of_an_app(town: Town) -> None:
    """It does not say whose it is until an operator does; another is its App's from the beginning."""
    await town.submit("unsaid")
    await town.claim("unsaid")
    number = town.number("unsaid")
    assigned = AssignApp(actor="operator", task_no=number, app=APP, from_app="", by="ana", reason="ours")
    await town.apply(assigned)
    await town.claim("unsaid", 3)
    await town.advance("unsaid", ending=Process('"ok"'))
    await town.submit("ours", app=APP)
    await town.claim("ours")
    await town.advance("ours", opened=(request("charge"),), ending=Keep())
    await town.advance("ours", (1, Succeeded("1")), ending=Process('"ok"'))


async def _outage(town: Town) -> None:
    """A service that fails: its breaker opens, two canaries go, the second one is answered; an operator pauses it in between."""
    gate = {"app": APP, "agent": GATE, "target": ""}
    by = {"by": "ana", "reason": "they called"}
    again = policy(attempts=5)
    for task_id in ("burnt", "later", "lucky"):
        await town.submit(task_id, app=APP)
        await town.claim(task_id, 3)
        await town.advance(task_id, opened=(request("look", agent=GATE, policy=again),), ending=Keep())
    retry = RetryAsked(UNSURE, True, Instant(town.at))
    await town.advance("burnt", (1, retry), ending=Keep())
    policy_text = msgspec.json.encode(Breaker(cool_off=10, ramp=0)).decode()
    since = later(Instant(town.at), -1)
    await town.apply(TripBreaker(actor="p3", **gate, policy=policy_text, reason="all failed", failing_since=since))
    await town.advance("later", (1, retry), ending=Keep())
    await town.advance("lucky", (1, Succeeded("1")), ending=Process('"ok"'))
    take = Take(actor="p3", process_no=3, room=((GATE, 1),), names=("look",), probation=None, app=APP)
    town.wait(10)
    await town.apply(take)
    await town.advance("burnt", (1, RetryAsked(UNSURE, True, Instant(town.at))), ending=Keep())
    await town.apply(OperateAgent(actor="cli", verb=AgentVerb.PAUSE, **gate, **by))
    await town.apply(OperateAgent(actor="cli", verb=AgentVerb.RESUME, **gate, **by))
    town.wait(11)
    await town.apply(take)
    await town.advance("later", (1, Succeeded("1")), ending=Process('"ok"'))
    await town.apply(take)
    await town.advance("burnt", (1, Succeeded("1")), ending=Process('"ok"'))


async def _probed(town: Town) -> None:
    """A part of a service that fails: the first probe of it fails, the second one finds it well."""
    north = {"actor": "p3", "app": APP, "agent": GATE, "target": "north"}
    policy_text = mark_probe(msgspec.json.encode(Breaker(cool_off=10, ramp=0)).decode())
    since = later(Instant(town.at), -1)
    await town.apply(TripBreaker(**north, policy=policy_text, reason="all failed", failing_since=since))
    for failure in ("refused", None):
        town.wait(10)
        begun = await town.apply(BeginProbe(**north, complete_within=5.0))
        assert isinstance(begun, BreakerApplied)
        await town.apply(EndProbe(**north, fence=begun.breaker.fence, failure=failure))
    town.wait(1)
    assert await town.store.close_recovered_breakers("p3") == 1


async def _extended(town: Town) -> None:
    """Its attempt asks for more time, keeps a value, and ends after its first deadline."""
    await town.submit("long")
    await town.claim("long")
    await town.advance("long", opened=(request("charge"),), ending=Keep())
    town.wait(COMPLETE_WITHIN - 1)
    asked: dict[str, Any] = {"actor": "p1", "process_no": 1, "step_no": town.step_no("long", 1), "fence": 1}
    await town.apply(ExtendAttempt(**asked, seconds=3 * COMPLETE_WITHIN, latest=later(Instant(town.at), LIMIT)))
    await town.apply(SaveCheckpoint(**asked, value='{"page":3}', replaces=None))
    town.wait(2 * COMPLETE_WITHIN)
    await town.advance("long", (1, Succeeded("1")), ending=Process('"ok"'))


async def _released(town: Town) -> None:
    """Its first attempt goes back before its work began."""
    await town.submit("returned")
    await town.claim("returned")
    await town.advance("returned", opened=(request("look", agent="far", take=False),), ending=Keep())
    take = Take(actor="p3", process_no=3, room=(("far", 1),), names=("look",), probation=None, app=APP)
    await town.apply(take)
    await town.apply(ReleaseAttempt(actor="p3", step_no=town.step_no("returned", 1), fence=1))
    await town.apply(take)
    await town.advance("returned", (1, Succeeded("1")), ending=Process('"ok"'))


async def _doubted(town: Town) -> None:
    """A call whose outcome is unknown, another one whose attempt goes back, and an attempt that surely did not happen."""
    await town.submit("doubted")
    await town.claim("doubted")
    await town.advance("doubted", opened=(request("look", agent="far", take=False),), ending=Keep())
    take = Take(actor="p3", process_no=3, room=(("far", 1),), names=("look",), probation=None, app=APP)
    await town.apply(take)
    asked: dict[str, Any] = {"step_no": town.step_no("doubted", 1), "fence": 1}
    await town.apply(BeginTry(actor="p3", process_no=3, app=APP, agent="far", in_doubt=True, **asked))
    await town.apply(ReleaseAttempt(actor="p3", **asked))
    await town.apply(take)
    await town.advance("doubted", (1, GaveUp(REFUSED, False)), ending=Process('"caught"'))


async def _delivered(town: Town) -> None:
    """A program holds the attempt of a step. An operator says that it did not happen, and the next one is reported."""
    await town.submit("delivered")
    await town.claim("delivered")
    await town.advance("delivered", opened=(request("look", agent="far", take=False),), ending=Keep())
    take = Take(actor="p3", process_no=3, room=(("far", 1),), names=("look",), probation=None, app=APP)
    asked: dict[str, Any] = {"process_no": 3, "step_no": town.step_no("delivered", 1)}
    await town.apply(take)
    await town.apply(DeliverAttempt(actor="p3", fence=1, **asked))
    await town.operate("delivered", Verb.ANSWER, step=1, did_not_happen=True)
    await town.claim("delivered")
    await town.apply(take)
    await town.apply(DeliverAttempt(actor="p3", fence=3, **asked))
    await town.advance("delivered", (1, Succeeded("1")), ending=Process('"ok"'))


async def _limited(town: Town) -> None:
    """A step of an Agent with limits; its attempt makes two calls."""
    await town.submit("metered")
    await town.claim("metered")
    await town.advance("metered", opened=(request("look", agent=METER, take=False, limit_keys="{}"),), ending=Keep())
    await town.apply(Take(actor="p3", process_no=3, room=((METER, 1),), names=("look",), probation=None, app=APP))
    asked: dict[str, Any] = {"process_no": 3, "step_no": town.step_no("metered", 1), "fence": 1}
    await town.apply(BeginTry(actor="p3", app=APP, agent=METER, **asked))
    await town.advance("metered", (1, Succeeded("1")), ending=Process('"ok"'))


async def _signalled(town: Town) -> None:
    """A signal before its wait, one whose value does not fit, and a request that is answered."""
    sent: dict[str, Any] = {"actor": "signal", "value": "1", "sent_by": "ana"}
    await town.submit("waiting")
    await town.apply(SendSignal(**sent, task_no=town.number("waiting"), name="signal:paid", signal_id="early"))
    await town.claim("waiting")
    waits = [NewStep(kind=StepKind.TIMER, name=f"{of}", key="#1") for of in ("signal:paid", "request:address")]
    waits += [NewStep(kind=StepKind.TIMER, name=f"patch:{of}", key="#1") for of in ("new-bank", "new-text")]
    await town.advance("waiting", opened=tuple(waits), ending=Keep())
    await town.apply(SendSignal(**sent, task_no=town.number("waiting"), name="signal:paid", signal_id="odd"))
    ask = SendSignal(**sent, task_no=town.number("waiting"), name="request:address", signal_id="ask", wants_reply=True)
    await town.apply(ask)
    first, second = town.step_no("waiting", 1), town.step_no("waiting", 2)
    at = Instant(town.at)
    taken = (Signalled(first, 2, at, "no"), Signalled(first, 1, at), Signalled(second, 3, at))
    reply = NewStep(kind=StepKind.TIMER, name="reply:address", key="#1", arguments='{"value":1}', replies_to=3)
    await town.advance("waiting", taken=taken, opened=(reply,), ending=Keep())
    await town.advance("waiting", ending=Process('"ok"'))


async def _called_back(town: Town) -> None:
    """A callback that is completed by a value that does not fit, and then by one that does."""
    await town.submit("called")
    await town.claim("called")
    opened = NewStep(kind=StepKind.TIMER, name="callback:bank", key="#1")
    await town.advance("called", opened=(opened,), ending=Keep())
    sent: dict[str, Any] = {"actor": "signal", "sent_by": "", "name": "callback:bank#1@1", "wait": 1}
    for number, unfit in (1, "no"), (2, ""):
        await town.apply(SendSignal(**sent, task_no=town.number("called"), signal_id=f"s-{number}", value=str(number)))
        taken = Signalled(town.step_no("called", 1), number, Instant(town.at), unfit)
        await town.advance("called", taken=(taken,), ending=Keep() if unfit else Process('"ok"'))


async def _continued(town: Town) -> None:
    """A run that takes one signal of two, and the run after it, with the other one."""
    await town.submit("continuing")
    await town.claim("continuing")
    wait = NewStep(kind=StepKind.TIMER, name="signal:paid", key="#1")
    await town.advance("continuing", opened=(wait,), ending=Keep())
    sent: dict[str, Any] = {"actor": "signal", "value": "1", "sent_by": "", "name": "signal:paid"}
    for name in ("first", "second"):
        await town.apply(SendSignal(**sent, task_no=town.number("continuing"), signal_id=name))
    rules = msgspec.json.encode(TaskPolicy(LIMIT, Supervision())).decode()
    taken = (Signalled(town.step_no("continuing", 1), 1, Instant(town.at)),)
    await town.advance("continuing", taken=taken, ending=Continue("{}", rules, LIMIT))
    await town.claim("continuing")
    await town.advance("continuing", opened=(wait,), ending=Keep())
    taken = (Signalled(town.step_no("continuing", 1), 1, Instant(town.at)),)
    await town.advance("continuing", taken=taken, ending=Process('"ok"'))


def call_child(name: str, *, is_detached: bool = False) -> NewStep:
    """A step that is another task, whose id and workflow are that name."""
    options = ChildOptions(
        msgspec.json.encode(TaskPolicy(None, Supervision())).decode(), task_id=name, is_detached=is_detached
    )
    text = msgspec.json.encode(StepPolicy(0.0, None, ONE_TRY, Supervision(), child=options)).decode()
    compensation = None if is_detached else text
    return NewStep(kind=StepKind.CHILD, name=name, key="#1", arguments="{}", policy=text, compensation=compensation)


async def _with_children(town: Town) -> None:
    """Two children that are undone, one after its end and one before; and one that is left alone."""
    children = {"hotel": 1, "flight": 2, "postcard": 3}
    await town.submit("trip")
    await town.claim("trip")
    opened = (call_child("hotel"), call_child("flight"), call_child("postcard", is_detached=True))
    await town.advance("trip", opened=opened, ending=Keep())
    for name, ordinal in children.items():
        await town.submit(name, parent_step=town.step_no("trip", ordinal), depth=1, reply_to=None)
        await town.claim(name, 3)
    await town.advance("trip", taken=(_ended(town, 3, Succeeded('"postcard"'), "postcard"),), ending=Keep())
    await town.advance("hotel", opened=(request("charge"),), ending=Keep())
    await town.advance("hotel", (1, Succeeded("1")), ending=Process('"room"'))
    await town.apply(NoteChildEnd(actor="p3", step_no=town.step_no("trip", 1)))
    await town.advance("trip", taken=(_ended(town, 1, Succeeded('"room"'), "hotel"),), ending=Keep())
    await town.advance("flight", ending=Compensate(FAILURE))
    refused = GaveUp(StepFailure("permanent", FAILURE.reason, FAILURE.code), False)
    await town.advance("trip", taken=(_ended(town, 2, refused, "flight"),), ending=BeginUndo(FAILURE))
    planned = tuple(
        msgspec.structs.replace(
            call_child(name), kind=StepKind.COMPENSATION, compensation=None, undoes=town.step_no("trip", ordinal)
        )
        for name, ordinal in (("flight", 2), ("hotel", 1))
    )
    await town.advance("trip", ending=PlanUndo(FAILURE, planned))
    undone = _ended(town, 4, Succeeded("null"), "flight")
    await town.advance("trip", taken=(undone,), ending=NextUndo(town.step_no("trip", 5), False, 0.0))
    await town.operate("hotel", Verb.COMPENSATE, by="task trip")
    await town.claim("hotel", 3)
    await town.advance("hotel", ending=town.undo_of("hotel", 1))
    await town.advance("hotel", (2, Succeeded("null")), ending=Compensate(FAILURE))
    await town.advance("trip", taken=(_ended(town, 5, Succeeded("null"), "hotel"),), ending=Compensate(FAILURE))
    await town.advance("postcard", ending=Process('"sent"'))


async def _forked(town: Town) -> None:
    """A task that is held, and a fork of it that is undone. What it has as copies is left alone."""
    await town.submit("first", reply_to=None)
    await town.claim("first")
    await town.advance("first", opened=(request("charge"), request("look", undoable=False)), ending=Keep())
    failed = GaveUp(REFUSED, False)
    await town.advance("first", (1, Succeeded("1")), (2, failed), opened=(request("reserve"),), ending=Keep())
    await town.advance("first", (3, failed), ending=Hold(FAILURE))
    loaded = await town.store.load(town.number("first"))
    assert loaded is not None
    fork = build_fork(loaded, loaded.steps[2], "town", by="ana", reason="again")
    assert isinstance(fork, Fork)
    await town.submit("second", workflow="first", fork=fork, reply_to=None)
    claim = Claim(actor="p1", process_no=1, workflows=("first",), limit=1, probation=True, app=APP)
    assert isinstance(await town.apply(claim), Claimed)
    await town.advance("second", opened=(request("reserve"),), ending=Keep())
    await town.advance("second", (3, Succeeded("3")), ending=town.undo_of("second", 3))
    await town.advance("second", (4, Succeeded("null")), ending=Compensate(FAILURE))


def _ended(town: Town, ordinal: int, outcome: Succeeded | GaveUp, child: str) -> ChildEnded:
    task = town.task(child)
    return ChildEnded(town.step_no("trip", ordinal), Instant(town.at), outcome, task.task_no, task.incarnation)


async def _scheduled(town: Town) -> None:
    """A schedule, and its runs to their ends."""
    await live_through_a_schedule(town.store, town.wait, town.term)
    claim = Claim(actor="p3", process_no=3, workflows=("fulfil",), limit=10, probation=True, app=APP)
    claimed = await town.apply(claim)
    assert isinstance(claimed, Claimed)
    for loaded in claimed.tasks:
        await town.advance(loaded.task.task_id, ending=Process('"ok"'))


async def _of_a_paused_workflow(town: Town) -> None:
    """A task that waits while its workflow is paused, and begins once that is resumed."""
    on = {"actor": "cli", "app": APP, "workflow": "kept", "by": "ana", "reason": "the release is wrong"}
    assert isinstance(
        await town.store.change_workflow_pause(OperateWorkflow(state=PauseState.REFUSING, **on)), WorkflowPauseRow
    )
    await town.store.change_workflow_pause(OperateWorkflow(state=PauseState.PAUSED, **on))
    await town.submit("kept", app=APP)
    asked = {"workflows": ("kept",), "limit": 1, "probation": True, "app": APP}
    assert await town.apply(Claim(actor="p3", process_no=3, **asked)) == Claimed(())
    town.wait()
    await town.store.change_workflow_pause(OperateWorkflow(state=PauseState.RESUMING, **on))
    while await town.store.let_waiting_begin(APP, "kept", 10, "upkeep"):
        pass
    await town.claim("kept", 3)
    await town.advance("kept", ending=Process('"ok"'))


async def _upgraded(town: Town) -> None:
    """A task of one version of its code, which an operator moves to another; undone, it begins again with the newest."""
    about = msgspec.json.encode(ProcessAbout(app=APP, versions=BLUE)).decode()
    assert await town.store.register("p4", LEASE, about) == 4
    await town.submit("upgraded")
    await town.claim("upgraded", 3, versions=NEWEST)
    await town.advance("upgraded", opened=(request("charge"),), ending=Keep())
    await town.advance("upgraded", (1, Succeeded("1")), ending=Keep())
    await town.operate("upgraded", Verb.PIN, to="2@blue")
    await town.claim("upgraded", 4, versions=BLUE)
    await town.advance("upgraded", ending=BeginUndo(FAILURE))
    await town.advance("upgraded", ending=town.undo_of("upgraded", 1))
    await town.advance("upgraded", (2, Succeeded("null")), ending=Compensate(FAILURE))
    await town.operate("upgraded", Verb.RESUBMIT)
    await town.claim("upgraded", 3, versions=NEWEST)
    await town.advance("upgraded", ending=Process('"ok"'))


async def _purged(town: Town) -> None:
    """A task whose messages nobody read in time; then nothing of it is kept."""
    await town.submit("gone", reply_to="nobody")
    await town.claim("gone")
    await town.advance("gone", ending=Process('"ok"'))
    town.wait()
    assert await town.store.drop_statuses(Instant(town.at), 100) == 3
    for status in await town.store.load_statuses("nobody", 10):
        await town.store.acknowledge([("nobody", status.no)])
    which = Purge(states=(TaskState.PROCESSED,), ended_before=Instant(town.at))
    assert (await town.store.purge(which, actor="p1", limit=10)).count == 1


async def _everything() -> Town:
    town = Town()
    for number in (1, 2, 3):
        steps, limits = (((METER, "look"),), {METER: METER_LIMITS}) if number == 3 else ((), {})
        versions = NEWEST if number == 3 else {}
        about = ProcessAbout(app=APP, steps=steps, limits=limits, versions=versions)
        assert await town.store.register(f"p{number}", LEASE, msgspec.json.encode(about).decode()) == number
    await town.lead(1)
    await _purged(town)
    await _processed(town)
    await _undone_and_run_anew(town)
    await town.store.release_lease(SUPERVISOR_LEASE, 1, town.term, "p1")
    await town.lead(3)
    await _held_and_mended(town)
    await _in_the_hands_of_people(town)
    await _lost_and_expired(town)
    await _past_its_limit(town)
    await _of_an_app(town)
    await _outage(town)
    await _probed(town)
    await _extended(town)
    await _released(town)
    await _limited(town)
    await _doubted(town)
    await _delivered(town)
    await _signalled(town)
    await _called_back(town)
    await _continued(town)
    await _with_children(town)
    await _forked(town)
    await _scheduled(town)
    await _of_a_paused_workflow(town)
    await _upgraded(town)
    return town


@cache
def everything() -> Town:
    """The town after all of it; not to be changed."""
    return asyncio.run(_everything())


def disagreements() -> list[str]:
    """Where the town's tables say something else than its history."""
    fold = Fold()
    for row in list(everything().store.iterate_history()):
        fold.add(row)
    return [
        told
        for number, task in fold.tasks.items()
        for told in find_differences(task, everything().store.load_as_is(number))
    ]


# --- changing it afterwards
class Commit:
    """One row of a history, to be changed."""

    def __init__(self, task_no: int, task: str, at: int, actor: str, events: list[Event]) -> None:
        self.task_no = task_no
        self.task = task
        self.at = at
        self.actor = actor
        self.events = events


class Story:
    """A copy of the clean history. ``task`` is empty for the store's own stream."""

    def __init__(self) -> None:
        self.commits = [
            Commit(row.task_no, row.task_id, row.at, row.actor, msgspec.json.decode(row.events))
            for row in list(everything().store.iterate_history())
        ]

    def rows(self) -> list[HistoryRow]:
        """As a store would have kept it: numbered, linked and hashed anew."""
        rows: list[HistoryRow] = []
        heads: dict[int, tuple[int, str]] = {}
        for no, commit in enumerate(self.commits, start=1):
            link, head = heads.get(commit.task_no, (0, START))
            events = msgspec.json.encode(commit.events)
            digest = link_hash(head, commit.task_no, link + 1, commit.at, commit.actor, events.decode())
            heads[commit.task_no] = (link + 1, digest)
            rows.append(
                HistoryRow(
                    no,
                    commit.task_no,
                    commit.task,
                    link + 1,
                    Instant(commit.at),
                    commit.actor,
                    msgspec.Raw(events),
                    digest,
                )
            )
        return rows

    def of(self, task: str) -> list[Commit]:
        """A task's commits."""
        return [commit for commit in self.commits if commit.task == task]

    def found(self, task: str, kind: str, nth: int = 0, /, **fields: Any) -> tuple[Commit, Event]:
        """The n-th of a task's events that are of this type and have these fields, and its commit."""
        matches = [
            (commit, event)
            for commit in self.of(task)
            for event in commit.events
            if event["type"] == kind and fields.items() <= event.items()
        ]
        return matches[nth]

    def event(self, task: str, kind: str, nth: int = 0, /, **fields: Any) -> Event:
        return self.found(task, kind, nth, **fields)[1]

    def commit(self, task: str, kind: str, nth: int = 0, /, **fields: Any) -> Commit:
        return self.found(task, kind, nth, **fields)[0]

    def remove(self, task: str, kind: str, nth: int = 0, /, **fields: Any) -> Event:
        """Take an event out; a commit that is left empty goes with it."""
        commit, event = self.found(task, kind, nth, **fields)
        commit.events = [one for one in commit.events if one is not event]
        if not commit.events:
            self.commits.remove(commit)
        return event

    def insert(self, after: Commit, *events: Event) -> Commit:
        """One more commit of the same task, right after another and at the same instant."""
        inserted = Commit(after.task_no, after.task, after.at, after.actor, copy.deepcopy(list(events)))
        self.commits.insert(self.commits.index(after) + 1, inserted)
        return inserted

    def append(self, task: str, *events: Event) -> Commit:
        """One more commit at the end of a task."""
        return self.insert(self.of(task)[-1], *events)

    def move(self, event: Event, commit: Commit, before: Event | None = None) -> None:
        """Put an event into a commit: before another of it, else at its end."""
        for one in self.commits:
            one.events = [other for other in one.events if other is not event]
        index = len(commit.events) if before is None else next(i for i, e in enumerate(commit.events) if e is before)
        commit.events.insert(index, event)


Change = Callable[[Story], None]
