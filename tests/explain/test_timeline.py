"""A history as a story: every event has its sentence, steps go by their labels, and nothing in it makes it fail."""

from itertools import pairwise
from typing import Any

import msgspec
import pytest
from core_events import OF_TASK_STREAMS, whole
from hypothesis import given
from hypothesis import strategies as st

from arriero.explain.past import IncarnationStart, TimelineEntry, format_timeline
from arriero.model import HistoryRow, Instant, Verb
from lab.simulation.world import World

AT = Instant(1_767_225_600_000_000)  # 2026-01-01
LATER = AT + 60_000_000
FAILURE = {"cause": "transient", "message": "no line", "code": "busy"}
TASK_FAILURE = {"kind": "step", "reason": "charge: no line", "code": "busy"}
NOISE = "f00dfeed"  # stands for hashes and keys, which only machines need

Event = dict[str, Any]
OPENED: list[Event] = [
    {
        "type": "step.opened",
        "step": 1,
        "kind": "step",
        "name": "charge",
        "key": "#1",
        "agent": "payments",
        "idempotency_key": NOISE,
        "arguments": NOISE,
        "policy": {},
    },
    {"type": "step.opened", "step": 2, "kind": "step", "name": "ship", "key": "box-9", "agent": "stock", "pivot": True},
    {"type": "step.opened", "step": 3, "kind": "compensation", "name": "charge", "key": "#1", "agent": "payments"},
    {"type": "step.opened", "step": 4, "kind": "timer", "name": "sleep", "key": "#1", "fire_at": LATER},
]
# One of each kind, as the core writes them, and what must be in its sentence.
EVENTS: dict[str, tuple[Event, str]] = {
    "task.submitted": (
        {
            "workflow": "fulfil",
            "body": NOISE,
            "priority": 5,
            "not_before": LATER,
            "complete_by": LATER,
            "reply_to": "web-1",
        },
        "submitted to workflow fulfil with priority 5, not to start before 2026-01-01 00:01:00Z, to be done by",
    ),
    "task.claimed": (
        {"fence": 5077, "process": 7, "state": "compensating", "revision": 5078},
        "taken up for its undo by process 7",
    ),
    "task.released": ({"fence": 5077, "not_before": LATER, "why": "put_down"}, "put down until 2026-01-01 00:01:00Z"),
    "task.expired": ({"term": 5077}, "the task's own limit has passed"),
    "task.lost": ({"lost_count": 2, "process": 7}, "process 7 was lost while it worked on this task: loss 2"),
    "step.attempts_returned": (
        {"step": 1, "count": 2, "failure_count": 0},
        "2 failed attempts of the outage are no longer counted",
    ),
    "task.terminal": (
        {"state": "held", "fence": 5077, "failure": TASK_FAILURE},
        "held: it waits for an operator: charge: no line [busy]",
    ),
    "alert.opened": ({"cause": "step"}, "an alert is opened"),
    "alert.closed": ({}, "its alert is closed"),
    "task.assigned": (
        {"app": "shop", "from": "", "by": "ana", "reason": "ours", "fence": 9, "not_before": AT},
        "ana gives it to App 'shop', nothing said whose it was: ours",
    ),
    "operator.approval": (
        {
            "verb": "compensate",
            "by": "ana",
            "reason": "the customer insists",
            "incarnation": 1,
            "request": "{}",
            "persons": 2,
        },
        'ana approves compensate, which needs 2 operators: "the customer insists"',
    ),
    "operator.action": (
        {
            "verb": "resubmit",
            "by": "ana",
            "reason": "the bank is back",
            "before": "error",
            "after": "pending",
            "incarnation": 2,
            "fence": 5077,
            "not_before": AT,
        },
        'ana resubmitted it (held before, now pending): "the bank is back"',
    ),
    "status.published": (
        {"number": 3, "kind": "completed", "queue": "web-1"},
        "its submitter is notified: completed (message 3, reply queue web-1)",
    ),
    "step.opened": (OPENED[1], "step ship[box-9] is asked for (Agent stock), a pivot"),
    "step.reopened": (
        {**OPENED[0], "type": "step.reopened", "attempt": 4},
        "step charge is asked for again, as attempt 4",
    ),
    "step.set_back": ({"step": 1, "attempt": 4}, "step charge is to be done again, as attempt 4"),
    "step.edited": ({"step": 1, "arguments": NOISE, "idempotency_key": NOISE}, "step charge gets other arguments"),
    "step.adjusted": (
        {"step": 1, "limits": {"attempts": 10, "not_before": LATER}, "before": {"attempts": 3, "not_before": None}},
        "step charge: attempts 10 (3 before), next attempt not before 2026-01-01 00:01:00Z (none before)",
    ),
    "step.answered": (
        {"step": 1, "fence": 5077, "happened": True, "number": 5078, "result": NOISE},
        "step charge is done, says an operator",
    ),
    "step.dispatched": (
        {"step": 1, "attempt": 2, "fence": 5077, "complete_by": LATER, "process": 7, "key": NOISE},
        "step charge: attempt 2 begins at process 7, to end by 2026-01-01 00:01:00Z",
    ),
    "compensation.dispatched": (
        {"step": 3, "attempt": 1, "fence": 5077, "complete_by": LATER, "process": 7, "key": NOISE},
        "the undo of charge: attempt 1 begins at process 7",
    ),
    "attempt.extended": (
        {"step": 1, "fence": 5077, "complete_by": LATER},
        "step charge: its attempt gets more time, to end by 2026-01-01 00:01:00Z",
    ),
    "attempt.tried": (
        {"step": 1, "fence": 5077, "limits": {"rate": ""}, "in_doubt": True},
        "step charge is called again; a call before may have happened, so it is in doubt",
    ),
    "attempt.checkpoint": ({"step": 1, "fence": 5077, "value": NOISE}, "step charge: its attempt keeps a checkpoint"),
    "step.report": (
        {"step": 1, "fence": 5077, "verdict": "late", "outcome": "succeeded", "result": NOISE},
        "step charge: a report of a result was refused as late, nothing changed",
    ),
    "step.recorded": ({"step": 1, "number": 5077, "result": NOISE}, "step charge is completed"),
    "compensation.recorded": ({"step": 3, "number": 5077, "result": NOISE}, "the undo of charge is done"),
    "step.failed": (
        {"step": 1, "number": 5078, "failure": FAILURE, "in_doubt": True, "failure_count": 3, "fence": 5077},
        "step charge has failed permanently after 3 attempts: transient: no line [busy]; it is in doubt",
    ),
    "compensation.failed": (
        {"step": 3, "number": 5078, "failure": FAILURE, "in_doubt": False, "failure_count": 1, "fence": 5077},
        "the undo of charge has failed permanently after 1 attempt: transient: no line [busy]",
    ),
    "step.expired": (
        {"step": 1, "fence": 5077, "why": "expired", "term": 5078},
        "the Supervisor finds that step charge gave no answer in time",
    ),
    "recover.applied": (
        {
            "step": 1,
            "what": "cool_off",
            "fence": 5077,
            "failure_count": 3,
            "not_before": LATER,
            "in_doubt": True,
            "failure": FAILURE,
        },
        "failed, and is in doubt (transient: no line [busy]); its round of attempts is spent, tried again after a cool-off",
    ),
    "step.lost": ({"step": 1, "fence": 5077, "lost_count": 1}, "step charge: its attempt was lost with its process"),
    "attempt.delivered": ({"step": 1, "fence": 5077}, "step charge: its request has reached the program"),
    "attempt.revoked": ({"step": 1, "fence": 5077}, "step charge: its attempt is taken from the program"),
    "attempt.released": ({"step": 1, "fence": 5077}, "step charge: its attempt goes back before its work began"),
    "step.withdrawn": ({"step": 1, "in_doubt": True}, "step charge is withdrawn; it is in doubt"),
    "step.parked": ({"step": 3, "in_doubt": False}, "the undo of charge is set aside"),
    "compensation.reached": ({"step": 3}, "it is the turn of the undo of charge"),
    "timer.fired": ({"step": 4, "number": 5077}, "timer sleep has fired"),
    "undo.begun": ({"failure": TASK_FAILURE}, "the undo begins: charge: no line [busy]"),
    "convoy.placed": (
        {"convoy": 5077, "key": "customer-7", "place": 3, "rank": 12, "sequence": 12, "end": True},
        "it stands in convoy customer-7 with sequence 12, which nothing comes after",
    ),
    "convoy.opened": (
        {"convoy": 5077, "number": 5078, "fence": 5079, "rank": 12, "not_before": LATER},
        "it is its turn in the convoy, from 2026-01-01 00:01:00Z on",
    ),
    "convoy.closed": (
        {"convoy": 5077, "number": 5078, "turn": "set_aside", "fence": 5079, "why": "skip"},
        "it is set aside: its convoy continues without it",
    ),
    "convoy.stopped": (
        {"convoy": 5077, "number": 5078, "fence": 5079, "rank": 12, "expected": 13, "parked": True},
        "its convoy is blocked on it and is parked",
    ),
    "convoy.mended": ({"convoy": 5077, "number": 5078, "fence": 5079}, "its convoy continues with it"),
    "convoy.returned": (
        {"convoy": 5077, "number": 5078, "rank": 12, "fence": 5079, "place_lost": True},
        "it waits for its turn in the convoy again: others have gone before it, its place is lost",
    ),
    "convoy.left": ({"convoy": 5077, "number": 5078}, "it leaves its convoy before its turn, with nothing done"),
    "convoy.set_aside": (
        {"convoy": 5077, "number": 5078, "why": "late"},
        "it is set aside without its turn: it came too late",
    ),
    "convoy.moved": ({"convoy": 5077, "number": 5078, "rank": 2}, "it comes before all others that wait in its convoy"),
    "convoy.batched": (
        {"convoy": 5077, "number": 5078, "batch": 7, "rank": 2, "expected": 5079, "messages": 3, "most": 100},
        "it handles a batch of 3 messages",
    ),
    "convoy.message_ended": (
        {"convoy": 5077, "number": 5078, "batch": 7, "state": "processed", "fence": 5079, "output": NOISE},
        "it ended processed, as its batch, task number 7",
    ),
    "convoy.continued": (
        {"convoy": 5077, "number": 5078, "earlier": 6, "place": 2, "rank": 2},
        "it is still its turn in the convoy",
    ),
    "task.continued": (
        {"following": 8, "signals": [2, 3]},
        "it continues as task number 8, with 2 signals that no wait had taken",
    ),
    "task.forked": (
        {"of": "order-7", "task": 7, "step": 3, "label": "ship", "by": "ana", "reason": "another address"},
        "forked from step 3 (ship) of task order-7, asked by ana: another address",
    ),
    "step.copied": (
        {
            **{"step": 5, "kind": "step", "name": "reserve", "key": "#1", "agent": "stock"},
            **{"from_task": 7, "from_step": 2, "number": 2, "result": NOISE},
        },
        "is copied from task number 7, where it is step 2",
    ),
    "undo.planned": ({"steps": [3]}, "the undo is planned: charge"),
    "signal.sent": (
        {"number": 1, "name": "signal:approved", "signal_id": "desk-1", "value": NOISE, "by": "ana"},
        "ana sends signal signal:approved (number 1, id desk-1)",
    ),
    "signal.taken": ({"step": 4, "number": 2, "signal": 1}, "takes signal number 1"),
    "child.noticed": ({"step": 1}, "step charge has ended: the task is woken"),
    "signal.set_aside": (
        {"signal": 1, "reason": "not a number"},
        "set aside, since its value does not fit: not a number",
    ),
    "signal.answered": ({"step": 4, "signal": 1, "reply": NOISE}, "its code replies to request number 1"),
}


def row(*events: Event, at: int = AT, no: int = 1, actor: str = "client") -> HistoryRow:
    return HistoryRow(no, 1, "t-1", no, Instant(at), actor, msgspec.Raw(msgspec.json.encode(events)), "")


def said(*events: Event) -> list[str]:
    """What is said of events that follow the opening of some steps."""
    lines = [told for told in format_timeline([row(*OPENED), row(*events)]) if isinstance(told, TimelineEntry)]
    return [line.says for line in lines[len(OPENED) :]]


def test_every_event_that_a_history_may_hold_has_its_sentence() -> None:
    assert set(EVENTS) == OF_TASK_STREAMS


@pytest.mark.parametrize("kind", sorted(EVENTS))
def test_a_sentence_tells_what_happened_and_leaves_out_what_only_machines_need(kind: str) -> None:
    event, part = EVENTS[kind]
    (sentence,) = said({**event, "type": kind})
    assert part in sentence
    assert not sentence.startswith(kind)
    for noise in (NOISE, "5077", "5078", "fence", "{"):
        assert noise not in sentence


@pytest.mark.parametrize("verb", Verb)
def test_every_verb_on_a_task_has_its_words(verb: Verb) -> None:
    event, _ = EVENTS["operator.action"]
    (sentence,) = said({**event, "type": "operator.action", "verb": verb.value})
    assert f"ana {verb.value} " not in sentence


def test_a_report_that_is_applied_and_one_that_is_refused_are_told_apart() -> None:
    reports = [
        {"type": "step.report", "step": 1, "fence": 1, "verdict": verdict, "outcome": "failed", "result": None}
        for verdict in ("applied", "late", "stale", "duplicate", "unknown", "malformed")
    ]
    applied, *refused = said(*reports)
    assert applied == "step charge: its attempt reports a failure"
    assert len(set(refused)) == len(refused)
    assert all("was refused as" in sentence and "nothing changed" in sentence for sentence in refused)


def test_the_decision_after_a_failed_attempt_names_the_attempt() -> None:
    dispatched, recovered = EVENTS["step.dispatched"][0], EVENTS["recover.applied"][0]
    sentences = said(
        {**dispatched, "type": "step.dispatched"}, {**recovered, "type": "recover.applied", "what": "retry"}
    )
    assert "step charge: attempt 2 failed" in sentences[1]
    assert sentences[1].endswith("tried again not before 2026-01-01 00:01:00Z")


def test_each_incarnation_is_a_section_and_counts_its_time_from_its_beginning() -> None:
    resubmitted = {"type": "operator.action", **EVENTS["operator.action"][0]}
    told = list(
        format_timeline(
            [
                row({"type": "task.submitted", **EVENTS["task.submitted"][0]}),
                row({"type": "task.terminal", **EVENTS["task.terminal"][0]}, at=AT + 5_000_000),
                row(resubmitted, {"type": "alert.closed"}, at=AT + 90_000_000),
                row({"type": "alert.closed"}, at=AT + 92_000_000, actor="vm-12-abcdef012345"),
            ]
        )
    )
    sections = [(at, one.incarnation) for at, one in enumerate(told) if isinstance(one, IncarnationStart)]
    assert sections == [(0, 1), (3, 2)]
    assert [line.after for line in told if isinstance(line, TimelineEntry)] == [0.0, 5.0, 0.0, 0.0, 2.0]


def test_a_process_goes_by_its_number_and_its_name_is_told_once() -> None:
    first, other = "vm-12-abcdef012345", "vm-77-abcdef999999"
    opened = {"type": "alert.closed"}
    told = format_timeline(
        [
            row({"type": "task.submitted", **EVENTS["task.submitted"][0]}),
            row(whole({"type": "task.claimed", "process": 7, "state": "processing"}), opened, actor=first),
            row(whole({"type": "task.expired"}), opened, actor=other),
            row(opened, actor=first),
            row(whole({"type": "task.claimed", "process": 8, "state": "processing"}), opened, actor=other),
            row(opened, actor=first),
            row(whole({"type": "task.claimed", "process": 8, "state": "processing"}), actor=other),
            row({"type": "operator.action", **EVENTS["operator.action"][0]}, actor="operator"),
        ]
    )
    closed = "its alert is closed: it is no longer held"
    assert [line.says for line in told if isinstance(line, TimelineEntry)][1:-1] == [
        "taken up by process 7 (vm-12-abcd)",
        closed,
        "the Supervisor finds that the task's own limit has passed (by process vm-77-abcd)",
        closed,
        f"{closed} (by process 7)",
        "taken up by process 8 (vm-77-abcd)",
        closed,
        f"{closed} (by process 7)",
        "taken up by process 8",
    ]


def test_an_event_of_a_later_release_and_one_that_is_not_as_it_should_be_are_shown_as_they_are() -> None:
    assert said({"type": "task.teleported", "to": "Mars"}) == ['task.teleported {"to":"Mars"}']
    assert said({"type": "step.lost"}) == ["step.lost {}"]
    assert said({"type": "step.dispatched", "step": 1, "attempt": 1, "complete_by": 10**30, "process": 1}) != []


@given(
    st.sampled_from(sorted(OF_TASK_STREAMS)),
    st.dictionaries(
        st.sampled_from(sorted({name for event, _ in EVENTS.values() for name in event})),
        st.one_of(
            st.none(), st.booleans(), st.integers(-(2**63), 2**63), st.text(max_size=5), st.lists(st.integers(0, 9))
        ),
    ),
)
def test_no_event_makes_the_story_fail(kind: str, fields: dict[str, Any]) -> None:
    assert said({**fields, "type": kind})


@pytest.mark.parametrize("seed", range(0, 40, 4))
def test_the_stories_of_a_simulated_world_hold_nothing_without_words_and_name_every_step(seed: int) -> None:
    world = World(seed)
    world.run()
    rows: dict[int, list[HistoryRow]] = {}
    for one in world.store.log:
        rows.setdefault(one.task_no, []).append(one)
    for task_no, of_task in rows.items():
        if task_no <= 0:
            continue  # of the store itself, and of its convoys
        told = list(format_timeline(of_task))
        lines = [line for line in told if isinstance(line, TimelineEntry)]
        assert all(not line.says.startswith(tuple(OF_TASK_STREAMS)) for line in lines)
        assert not [line for line in lines if "step number" in line.says]
        assert all(before.at <= after.at for before, after in pairwise(lines))
        sections = [section.incarnation for section in told if isinstance(section, IncarnationStart)]
        assert sections == list(range(1, world.store.tasks[task_no].incarnation + 1))


def test_words_of_releases_to_0_4_are_shown_in_those_of_today() -> None:
    event, _ = EVENTS["operator.action"]
    (acted,) = said({**event, "type": "operator.action", "before": "error", "after": "pending"})
    assert "(held before, now pending)" in acted
    event, _ = EVENTS["status.published"]
    (notified,) = said({**event, "type": "status.published", "kind": "needs_attention"})
    assert "notified: held" in notified
    event, _ = EVENTS["task.terminal"]
    (ended,) = said({**event, "type": "task.terminal", "state": "error"})
    assert ended.startswith("held: it waits for an operator")
