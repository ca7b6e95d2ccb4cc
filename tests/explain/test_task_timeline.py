"""The timeline of a task: bars by the store's clock, computed from its history, which nothing in it makes fail."""

from itertools import pairwise
from typing import Any

import msgspec
import pytest
from core_events import OF_TASK_STREAMS, whole
from core_rows import loaded, step_row
from hypothesis import given
from hypothesis import strategies as st

from arriero.events import decode_event_fields
from arriero.explain.task_timeline import TimelineBuilder, build_timeline
from arriero.explain.timeline_shapes import BarKind, BarOutcome, MarkKind, TaskTimeline, TimelineBar, TimelineRow
from arriero.explain.timeline_tracks import BARS_MAX
from arriero.model import HistoryRow, Instant, Loaded, StepKind, StepRow, StepState, TaskState
from arriero.store.readable import legible_task
from lab.simulation.world import World

AT = 1_767_225_600_000_000  # 2026-01-01
SECOND = 1_000_000
FAILURE = {"cause": "transient", "message": "no line", "code": "busy"}
Event = dict[str, Any]


def at(seconds: float) -> Instant:
    return Instant(AT + round(seconds * SECOND))


def row(seconds: float, *events: Event, no: int = 1) -> HistoryRow:
    return HistoryRow(no, 1, "t-1", no, at(seconds), "client", msgspec.Raw(msgspec.json.encode(events)), "")


def written(*commits: tuple[float, list[Event]]) -> list[HistoryRow]:
    return [row(after, *map(whole, events), no=no) for no, (after, events) in enumerate(commits, start=1)]


def opened(step: int = 1, name: str = "charge", **fields: Any) -> Event:
    return {"type": "step.opened", "step": step, "kind": "step", "name": name, "key": "#1", "agent": "bank", **fields}


def dispatched(step: int = 1, attempt: int = 1, kind: str = "step") -> Event:
    return {"type": f"{kind}.dispatched", "step": step, "attempt": attempt, "complete_by": at(60), "process": 7}


def recovered(step: int = 1, what: str = "retry", until: float = 10, *, in_doubt: bool = False) -> Event:
    fields = {"what": what, "not_before": at(until), "failure": FAILURE, "in_doubt": in_doubt, "failure_count": 1}
    return {"type": "recover.applied", "step": step, **fields}


SUBMITTED: Event = {"type": "task.submitted", "workflow": "fulfil", "not_before": AT, "complete_by": None}
CLAIMED: Event = {"type": "task.claimed", "process": 7, "state": "processing"}
RECORDED: Event = {"type": "step.recorded", "step": 1}


def shape(bars: tuple[TimelineBar, ...]) -> list[tuple[str, float, float | None, str]]:
    """Kind, start and end in seconds, and outcome."""
    return [
        (
            bar.kind.value,
            (bar.start - AT) / SECOND,
            None if bar.end is None else (bar.end - AT) / SECOND,
            bar.outcome.value,
        )
        for bar in bars
    ]


def draw(*commits: tuple[float, list[Event]], of: Loaded | None = None, now: float = 100) -> TaskTimeline:
    of = loaded(step_row(), submitted_at=at(0)) if of is None else of
    return build_timeline(written(*commits), of, at(now))


def find(timeline: TaskTimeline, ordinal: int) -> TimelineRow:
    (found,) = [one for one in timeline.rows if one.ordinal == ordinal]
    return found


def test_a_step_waits_for_its_agent_and_has_a_bar_for_each_attempt() -> None:
    timeline = draw(
        (0, [SUBMITTED]),
        (1, [CLAIMED, opened()]),
        (2, [dispatched()]),
        (5, [{"type": "step.report", "step": 1, "verdict": "applied", "outcome": "succeeded", "result": ""}, RECORDED]),
        of=loaded(step_row(state=StepState.COMPLETED), submitted_at=at(0)),
    )
    step = find(timeline, 1)
    assert shape(step.bars) == [("wait", 1, 2, "none"), ("attempt", 2, 5, "ok")]
    assert (step.label, step.kind, step.state, step.agent, step.attempts) == ("charge", "step", "completed", "bank", 1)
    assert shape(find(timeline, 0).bars) == [("wait", 0, 1, "none"), ("run", 1, None, "open")]
    assert (timeline.start, timeline.end, timeline.is_open) == (at(0), at(100), True)


def test_a_failed_attempt_is_followed_by_the_pause_and_the_wait_before_the_next_one() -> None:
    timeline = draw(
        (0, [SUBMITTED, CLAIMED, opened()]),
        (1, [dispatched()]),
        (3, [recovered(until=10)]),
        (14, [dispatched(attempt=2)]),
    )
    assert shape(find(timeline, 1).bars) == [
        ("wait", 0, 1, "none"),
        ("attempt", 1, 3, "failed"),
        ("delay", 3, 10, "none"),
        ("wait", 10, 14, "none"),
        ("attempt", 14, None, "open"),
    ]


def test_the_pause_before_a_retry_and_a_cool_off_that_still_last_are_open() -> None:
    for what, label in (("retry", "pause before a retry"), ("cool_off", "cool-off")):
        commits = [
            (0.0, [SUBMITTED, CLAIMED, opened()]),
            (1.0, [dispatched()]),
            (3.0, [recovered(what=what, until=50)]),
        ]
        (*_, delay) = find(draw(*commits, now=20), 1).bars
        assert (delay.kind, delay.end, delay.label, delay.until) == (BarKind.DELAY, None, label, at(50))
        (*_, delay, wait) = find(draw(*commits, now=60), 1).bars
        assert (delay.end, wait.kind, wait.start, wait.end) == (at(50), BarKind.WAIT, at(50), None)


def test_an_attempt_that_is_lost_leaves_a_doubt_until_the_step_has_a_result() -> None:
    timeline = draw(
        (0, [SUBMITTED, CLAIMED, opened()]),
        (1, [dispatched()]),
        (4, [{"type": "step.lost", "step": 1, "lost_count": 1}]),
        (6, [dispatched(attempt=2)]),
        (9, [RECORDED]),
        of=loaded(step_row(state=StepState.COMPLETED), submitted_at=at(0)),
    )
    step = find(timeline, 1)
    assert [bar.outcome for bar in step.bars] == [BarOutcome.NONE, BarOutcome.LOST, BarOutcome.NONE, BarOutcome.OK]
    assert shape(step.doubts) == [("doubt", 4, 9, "none")]


def test_an_answer_that_comes_too_late_is_seen_at_its_attempt_and_as_a_mark() -> None:
    timeline = draw(
        (0, [SUBMITTED, CLAIMED, opened()]),
        (1, [dispatched()]),
        (4, [{"type": "step.expired", "step": 1, "why": "expired", "term": 1}, recovered(in_doubt=True)]),
        (
            6,
            [{"type": "step.report", "step": 1, "verdict": "late", "outcome": "succeeded", "result": "", "attempt": 1}],
        ),
    )
    step = find(timeline, 1)
    assert step.bars[1].outcome is BarOutcome.LATE
    assert shape(step.doubts) == [("doubt", 4, None, "open")]
    assert [(mark.kind, mark.ordinal) for mark in timeline.marks[-1:]] == [(MarkKind.NOTE, 1)]


def test_the_undo_of_a_step_ends_its_doubt() -> None:
    undo = opened(2, kind="compensation", undoes=1, planned=True)
    timeline = draw(
        (0, [SUBMITTED, CLAIMED, opened()]),
        (1, [dispatched()]),
        (4, [{"type": "step.failed", "step": 1, "failure": FAILURE, "in_doubt": True, "failure_count": 1}]),
        (5, [{"type": "undo.begun", "failure": {"kind": "step", "reason": "no line"}}, undo]),
        (6, [{"type": "compensation.reached", "step": 2}]),
        (7, [dispatched(2, kind="compensation")]),
        (
            9,
            [
                {"type": "compensation.recorded", "step": 2},
                {"type": "task.terminal", "state": "compensated", "fence": 1},
            ],
        ),
        of=loaded(
            step_row(state=StepState.FAILED),
            step_row(2, kind=StepKind.COMPENSATION, state=StepState.COMPLETED),
            state=TaskState.COMPENSATED,
            submitted_at=at(0),
            ended_at=at(9),
        ),
    )
    assert shape(find(timeline, 1).doubts) == [("doubt", 4, 9, "none")]
    undone = find(timeline, 2)
    assert (undone.label, undone.undoes) == ("undo of charge", 1)
    assert shape(undone.bars) == [("wait", 6, 7, "none"), ("undo", 7, 9, "ok")]
    assert [bar.kind for bar in find(timeline, 0).bars] == [BarKind.RUN, BarKind.UNDO]
    assert (timeline.end, timeline.is_open) == (at(9), False)


@pytest.mark.parametrize(
    ("name", "kind", "label"),
    [
        ("sleep", "sleep", "sleep"),
        ("signal:paid", "signal", "signal paid"),
        ("question:desk", "question", "question desk"),
    ],
)
def test_a_timer_and_what_the_code_waits_for_are_bars_of_their_kinds(name: str, kind: str, label: str) -> None:
    timer = opened(1, name, kind="timer", agent="", fire_at=at(30))
    timeline = draw((0, [SUBMITTED, CLAIMED]), (2, [timer]), (30, [{"type": "timer.fired", "step": 1}]))
    step = find(timeline, 1)
    assert (step.label, step.bars[0].until) == (label, at(30))
    assert shape(step.bars) == [(kind, 2, 30, "ok" if name == "sleep" else "expired")]


def test_the_mark_of_a_patch_and_a_reply_are_marks_and_no_rows() -> None:
    notes = [opened(1, "patch:faster", kind="timer", agent=""), opened(2, "reply:price", kind="timer", agent="")]
    timeline = draw((0, [SUBMITTED, CLAIMED]), (2, notes), of=loaded(submitted_at=at(0)))
    assert [one.ordinal for one in timeline.rows] == [0]
    assert [mark.kind for mark in timeline.marks[1:]] == [MarkKind.NOTE, MarkKind.NOTE]


def test_a_held_task_waits_for_an_operator_whose_verb_is_a_mark_with_name_and_reason() -> None:
    acted = {
        "type": "operator.action",
        **{"verb": "resubmit", "by": "ana", "reason": "the bank is back", "before": "held", "after": "pending"},
        **{"incarnation": 2, "not_before": at(50)},
    }
    ended = {"type": "task.terminal", "state": "held", "fence": 1}
    commits: list[tuple[float, list[Event]]] = [(0, [SUBMITTED, CLAIMED]), (10, [ended])]
    held = draw(*commits, of=loaded(state=TaskState.HELD, submitted_at=at(0), ended_at=at(10)))
    assert shape(find(held, 0).bars) == [("run", 0, 10, "none"), ("operator", 10, None, "open")]
    assert at(10) < held.end <= held.now
    reopened = draw(*commits, (50, [acted]), (51, [CLAIMED]), of=loaded(submitted_at=at(0), incarnation=2))
    assert [bar.kind.value for bar in find(reopened, 0).bars] == ["run", "operator", "wait", "run"]
    (mark,) = [mark for mark in reopened.marks if mark.kind is MarkKind.OPERATOR]
    assert (mark.by, mark.reason, mark.at) == ("ana", "the bank is back", at(50))


def test_a_paused_task_waits_for_an_operator_until_it_is_resumed() -> None:
    def act(verb: str, *, paused: bool) -> Event:
        states = {"before": "processing", "after": "processing", "incarnation": 1, "not_before": None, "paused": paused}
        return {"type": "operator.action", "verb": verb, "by": "ana", "reason": "look", **states}

    timeline = draw(
        (0, [SUBMITTED, CLAIMED]),
        (3, [act("pause", paused=True)]),
        (4, [{"type": "task.claimed", "process": 7, "state": "processing"}]),
        (9, [act("resume", paused=False)]),
        of=loaded(submitted_at=at(0)),
    )
    assert shape(find(timeline, 0).bars) == [
        ("run", 0, 3, "none"),
        ("operator", 3, 9, "none"),
        ("run", 9, None, "open"),
    ]


def test_more_attempts_than_a_row_can_show_are_merged_and_counted() -> None:
    commits: list[tuple[float, list[Event]]] = [(0, [SUBMITTED, CLAIMED, opened()])]
    for number in range(100):
        commits += [
            (number * 3 + 1, [dispatched(attempt=number + 1)]),
            (number * 3 + 2, [recovered(until=number * 3 + 3)]),
        ]
    step = find(draw(*commits, now=400), 1)
    assert len(step.bars) <= BARS_MAX + 2
    merged = step.bars[0]
    assert merged.kind is BarKind.MERGED
    assert merged.count > 100
    assert merged.label == f"{merged.count} earlier"
    assert step.attempts == 100


def test_of_more_steps_than_there_is_room_for_the_open_the_doubtful_and_the_newest_are_kept() -> None:
    steps = [step_row(ordinal, state=StepState.COMPLETED, in_doubt=ordinal == 3) for ordinal in range(1, 51)]
    steps[4] = step_row(5, state=StepState.RUNNING)
    commits = [(0.0, [SUBMITTED, CLAIMED, *(opened(ordinal) for ordinal in range(1, 51))])]
    timeline = build_timeline(written(*commits), loaded(*steps, submitted_at=at(0)), at(9), rows_max=5)
    assert [one.ordinal for one in timeline.rows] == [0, 3, 5, 48, 49, 50]
    assert timeline.rows_left_out == 45


def test_a_step_whose_opening_cannot_be_read_gets_one_bar_from_its_row() -> None:
    of = loaded(step_row(state=StepState.FAILED, opened_at=at(2), finished_at=at(6)), submitted_at=at(0))
    timeline = draw((0, [SUBMITTED, CLAIMED]), of=of)
    assert shape(find(timeline, 1).bars) == [("unknown", 2, 6, "none")]


def test_a_task_without_a_history_has_a_row_all_the_same() -> None:
    timeline = build_timeline([], loaded(submitted_at=at(0)), at(9))
    assert shape(timeline.rows[0].bars) == [("unknown", 0, None, "open")]


def test_an_event_of_a_later_release_and_a_damaged_row_are_counted_and_marked() -> None:
    rows = [row(0, whole(SUBMITTED)), row(1, {"type": "task.teleported", "to": "Mars"}, no=2)]
    rows.append(HistoryRow(3, 1, "t-1", 3, at(2), "client", msgspec.Raw(b"[{"), ""))
    timeline = build_timeline(rows, loaded(submitted_at=at(0)), at(9))
    assert (timeline.unreadable, timeline.events) == (2, 3)
    assert [mark.kind for mark in timeline.marks][-2:] == [MarkKind.UNREADABLE] * 2


@given(
    st.lists(
        st.tuples(
            st.sampled_from(sorted(OF_TASK_STREAMS)),
            st.dictionaries(
                st.sampled_from(
                    ["step", "attempt", "at", "kind", "name", "why", "state", "paused", "not_before", "until"]
                ),
                st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**63), st.text(max_size=5)),
            ),
        ),
        max_size=12,
    )
)
def test_no_history_makes_the_timeline_fail(events: list[tuple[str, Event]]) -> None:
    commits = [
        row(at, whole({"type": kind}) | fields | {"type": kind}, no=at + 1) for at, (kind, fields) in enumerate(events)
    ]
    of = loaded(step_row(opened_at=at(0)), submitted_at=at(0))
    check(build_timeline(commits, of, at(50)))


def check(timeline: TaskTimeline) -> None:
    for one in timeline.rows:
        for bars in (one.bars, one.doubts):
            assert all(bar.end is None or bar.start <= bar.end for bar in bars)
            assert all(first.end is not None and first.end <= second.start for first, second in pairwise(bars))
    msgspec.json.encode(timeline)


def check_attempts(drawn: TimelineRow, step: StepRow, rows: list[HistoryRow]) -> None:
    """Each attempt that the history has is a bar, and the last bar is as the row says."""
    events = [event for row in rows for event in decode_event_fields(row) if event.get("step") == step.ordinal]
    begun = [one["attempt"] for one in events if one["type"] in ("step.dispatched", "compensation.dispatched")]
    if BarKind.MERGED not in [bar.kind for bar in drawn.bars]:
        assert [bar.attempt for bar in drawn.bars if bar.attempt] == begun
    if step.state is StepState.RUNNING and step.complete_by is not None:
        assert (drawn.bars[-1].attempt, drawn.bars[-1].end) == (step.attempt, None)
    if step.state is StepState.COMPLETED and begun:
        assert drawn.bars[-1].outcome is BarOutcome.OK


@pytest.mark.parametrize("seed", range(0, 60, 4))
def test_the_timelines_of_a_simulated_world_agree_with_its_rows(seed: int) -> None:
    world = World(seed)
    world.run()
    rows: dict[int, list[HistoryRow]] = {}
    for one in world.store.log:
        rows.setdefault(one.task_no, []).append(one)
    for task_no, task in world.store.tasks.items():
        steps = tuple(sorted(world.store.steps_of(task_no), key=lambda step: step.ordinal))
        of = legible_task(Loaded(task, "{}", steps))[0]
        builder = TimelineBuilder()
        for one in rows[task_no]:
            builder.add(one)
            check(builder.build(of, one.at))
        timeline = builder.build(of, world.store.now())
        check(timeline)
        assert timeline.unreadable == 0
        last = timeline.rows[0].bars[-1]
        is_held = of.task.state is TaskState.HELD
        assert (last.end is None) == (timeline.is_open or is_held), (seed, task_no, last)
        assert (last.kind is BarKind.OPERATOR and last.end is None) == (is_held or of.task.paused_at is not None)
        known = {step.ordinal: step for step in of.steps}
        for drawn in timeline.rows[1:]:
            check_attempts(drawn, known[drawn.ordinal], rows[task_no])
            step = known[drawn.ordinal]
            assert all(timeline.start <= bar.start <= (bar.end or timeline.end) <= timeline.end for bar in drawn.bars)
            is_open = bool(drawn.bars) and drawn.bars[-1].end is None
            assert not is_open or step.state in (StepState.PENDING, StepState.RUNNING), (seed, task_no, drawn)
            assert BarKind.UNKNOWN not in [bar.kind for bar in drawn.bars]
            assert drawn.in_doubt == any(bar.end is None for bar in drawn.doubts)
            is_undone = any(one.undoes == step.step_no and one.state is StepState.COMPLETED for one in of.steps)
            assert drawn.in_doubt == (step.in_doubt and not is_undone), (seed, task_no, drawn)
