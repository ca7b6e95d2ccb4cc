"""Acts of operators, read out of the commits of a history."""

from collections.abc import Iterator

import msgspec

from ..events import read_events_to_show
from ..events.base import HistoryNames, describe_event
from ..events.convoy import ConvoyAction
from ..events.store import (
    AgentPaused,
    AgentResumed,
    AppRenamed,
    BreakerClosed,
    BreakerOpened,
    ConvoysPurged,
    EpochOpened,
    LeaseBroken,
    LedgerDiscarded,
    LedgerPurged,
    ScheduleAsked,
    ScheduleDeclared,
    SchedulePaused,
    ScheduleRemoved,
    ScheduleResumed,
    TasksPurged,
    TokenCreated,
    TokenRevoked,
    WorkflowPausedEvent,
    WorkflowResumed,
)
from ..events.task import OperatorAction, OperatorApproval, TaskAssigned
from ..model import HistoryRow, Instant

ACTOR = "operator"  # begins the actor of most acts; a name may follow
OF_SCHEDULE = (ScheduleDeclared, ScheduleAsked, SchedulePaused, ScheduleResumed, ScheduleRemoved)
OF_AGENT = (AgentPaused, AgentResumed, BreakerOpened, BreakerClosed)
OF_TOKEN = (TokenCreated, TokenRevoked)
OF_STORE = (EpochOpened, AppRenamed, TasksPurged, ConvoysPurged, LedgerPurged, LedgerDiscarded)


class OperatorAct(msgspec.Struct, frozen=True, kw_only=True):
    """An act of an operator, as one event of a history says it.

    Attributes:
        by: who; empty: the history does not say.
        verb: in one word or two, like ``resubmit`` or ``paused``.
        kind: of the thing: task, convoy, agent, schedule, workflow, lease, token or store.
        subject: its name or id; empty: it is the store, or a task that was purged.
        reason: empty: none was given.
        says: the event in a sentence.
    """

    at: Instant
    by: str
    verb: str
    kind: str
    subject: str
    reason: str
    says: str


def list_acts(row: HistoryRow) -> Iterator[OperatorAct]:
    """List the acts of operators in one commit, in their order."""
    for event in read_events_to_show(row):
        kind, subject = "store", ""
        match event:
            case OperatorAction() | OperatorApproval() | TaskAssigned():
                kind, subject = "task", row.task_id
            case ConvoyAction():
                kind, subject = "convoy", row.task_id
            case ScheduleDeclared() | BreakerOpened() | BreakerClosed() if not event.by:
                continue  # code declared it, or the breaker did so by itself
            case _ if isinstance(event, OF_SCHEDULE):
                kind, subject = "schedule", event.schedule
            case _ if isinstance(event, OF_AGENT):
                kind, subject = "agent", f"{event.agent}[{event.target}]" if event.target else event.agent
            case WorkflowPausedEvent() | WorkflowResumed():
                kind, subject = "workflow", event.workflow
            case LeaseBroken():
                kind, subject = "lease", event.lease
            case _ if isinstance(event, OF_TOKEN):
                kind, subject = "token", event.name
            case _ if isinstance(event, OF_STORE):
                pass
            case _:
                continue
        yield OperatorAct(
            at=row.at,
            by=getattr(event, "by", "") or row.actor.removeprefix(ACTOR).strip(),
            verb=_name_verb(event),
            kind=kind,
            subject=subject,
            reason=getattr(event, "reason", ""),
            says=_describe(event, row),
        )


def _name_verb(event: object) -> str:
    verb = str(getattr(event, "verb", "") or getattr(event, "type", "").partition(".")[2])
    return f"approve {verb}" if isinstance(event, OperatorApproval) else verb.replace("_", " ")


def _describe(event: object, row: HistoryRow) -> str:
    match event:
        case TokenCreated():
            return f"a token for {event.name} with the scopes {', '.join(event.scopes)}"
        case TokenRevoked():
            return f"the token {event.token} of {event.name} is refused"
        case ConvoyAction():
            changed = "" if event.before == event.after else f" ({event.before} before, now {event.after})"
            return f'{event.by}: {event.verb}{changed}: "{event.reason}"'
        case _:
            return describe_event(event, HistoryNames(row.actor))  # type: ignore[arg-type]  # an event of the history
