"""Verbs on named things as operators are offered them: what each would do in the present state, or why it would be refused."""

import msgspec

from ..core.placement import explain_kept_key
from ..model import ConvoyVerb
from ..model.verb_rules import CONVOY_VERB_RULES
from .agents import AgentView
from .convoy import ConvoyView
from .schedules import ScheduleView
from .workflows import WorkflowView

CONVOY_VERBS = (ConvoyVerb.RELEASE, ConvoyVerb.SKIP, ConvoyVerb.PARK, ConvoyVerb.MOVE_TO_HEAD, ConvoyVerb.SET)
_OF_KEPT_KEYS = (ConvoyVerb.RELEASE, ConvoyVerb.SKIP)


class VerbOffer(msgspec.Struct, frozen=True):
    """A verb on a thing as it stands.

    Args:
        verb: as it is typed.
        operation: name of its function in the API.
        does: what it would do now.
        refused: why it is not allowed now; empty: it is.
    """

    verb: str
    operation: str
    does: str
    refused: str = ""


def offer_convoy_verbs(view: ConvoyView) -> tuple[VerbOffer, ...]:
    """Offer the verbs on a convoy as it stands."""
    return tuple(
        VerbOffer(
            str(verb).replace("_", "-"),
            f"{verb}_convoy",
            CONVOY_VERB_RULES.get((verb, view.state), ""),
            _refuse_convoy_verb(verb, view),
        )
        for verb in CONVOY_VERBS
    )


def _refuse_convoy_verb(verb: ConvoyVerb, view: ConvoyView) -> str:
    if verb not in _OF_KEPT_KEYS and (kept := explain_kept_key(view.key)):
        return f"{kept}: pause, resume or run the schedule instead"
    if (verb, view.state) not in CONVOY_VERB_RULES:
        allowed = [state for of, state in CONVOY_VERB_RULES if of is verb]
        return f"the convoy is {view.state}; this is allowed while it is {' or '.join(allowed)}"
    if verb is ConvoyVerb.MOVE_TO_HEAD and view.ordering == "sequence":
        return "the convoy is ordered by its producer's sequence; no task can be moved in it"
    if verb is ConvoyVerb.MOVE_TO_HEAD and view.waiting < 2:  # the first that waits is the next already
        return "fewer than two tasks wait for their turn"
    if verb is ConvoyVerb.SKIP and view.open_task is None and not view.missing:
        return "it waits for nothing that could be skipped"
    return ""


def offer_agent_verbs(view: AgentView) -> tuple[VerbOffer, ...]:
    """Offer the verbs on an Agent, or a target of it, as it stands."""
    is_held_open = view.state == "open" and bool(view.opened_by)
    not_closed = "" if view.state != "closed" else "its breaker is closed"
    paused = "" if view.paused_at is None else f"it is paused already, by {view.paused_by}"
    return (
        VerbOffer(
            "pause",
            "pause_agent",
            "no process takes a request of it until it is resumed; running attempts continue to their end",
            paused,
        ),
        VerbOffer("resume", "resume_agent", "processes take its requests again", "" if paused else "it is not paused"),
        VerbOffer(
            "open",
            "open_agent",
            "the breaker is held open: no call is made until an operator closes it, whatever the service answers",
            f"its breaker is held open already, by {view.opened_by}" if is_held_open else "",
        ),
        VerbOffer(
            "close", "close_agent", "the breaker closes: all calls are made again now, without canaries", not_closed
        ),
    )


def offer_schedule_verbs(view: ScheduleView) -> tuple[VerbOffer, ...]:
    """Offer the verbs on a schedule as it stands."""
    is_paused, has_ended = view.state == "paused", view.state == "ended"
    no_more = "no instant is left" if has_ended else ""
    back = view.declared_in_code and view.undeclared_since is None
    returns = "; its code declares it, so it is back when a process of its App starts" if back else ""
    fits = f"it submits nothing: {view.problem}" if view.problem else ""
    return (
        VerbOffer(
            "pause",
            "pause_schedule",
            "nothing is submitted until it is resumed; what is due meanwhile is never run",
            f"it is paused already, by {view.paused_by}" if is_paused else no_more,
        ),
        VerbOffer(
            "resume",
            "resume_schedule",
            "what becomes due from now on is submitted again",
            "" if is_paused else no_more or "it is not paused",
        ),
        VerbOffer("run-now", "run_schedule_now", "a run of now is submitted, whatever overlap says", fits),
        VerbOffer(
            "backfill",
            "backfill_schedule",
            "the runs of a time that has passed are submitted, where they are missing",
            fits,
        ),
        VerbOffer("remove", "remove_schedule", f"it is removed, and its runs stay{returns}"),
    )


def offer_workflow_verbs(view: WorkflowView) -> tuple[VerbOffer, ...]:
    """Offer the verbs on a workflow as it stands."""
    is_paused = view.state in ("paused", "refusing")
    return (
        VerbOffer(
            "pause",
            "pause_workflow",
            "no new task of it begins until it is resumed; tasks that have begun continue to their end",
            f"it is paused already, by {view.paused_by}" if is_paused else "",
        ),
        VerbOffer(
            "resume",
            "resume_workflow",
            "the tasks that wait begin, and new ones",
            "" if is_paused else "it is not paused",
        ),
    )
