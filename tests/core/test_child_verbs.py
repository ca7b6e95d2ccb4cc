"""Verbs of operators and children: what is refused, because another task has to do it, and what leaves children alone."""

from typing import Any

import msgspec
import pytest
from core_rows import NOW, OneTask, done, failure_text, loaded, step_row, task_row, undo_row

from arriero.core.changes import Change, Refused
from arriero.core.parents import ParentStep
from arriero.core.verb_guards import list_allowed_verbs
from arriero.core.verb_preview import find_verb_refusal
from arriero.core.verbs import operate
from arriero.events.task import OperatorAction
from arriero.model import Loaded, StepKind, StepRow, StepState, TaskState, Verb, later
from arriero.model.answers import Refusal
from arriero.model.commands import Operate
from arriero.model.policies import ONE_TRY, ChildOptions, StepPolicy, Supervision

LATER = later(NOW, 100)


def child_policy(**options: Any) -> str:
    policy = StepPolicy(0.0, None, ONE_TRY, Supervision(), child=ChildOptions("{}", **options))
    return msgspec.json.encode(policy).decode()


def child_row(ordinal: int, **changes: Any) -> StepRow:
    fields: dict[str, Any] = {"kind": StepKind.CHILD, "name": "book", "agent": "", "locked_by": None}
    fields |= {"state": StepState.RUNNING, "policy": child_policy(), "compensation": child_policy(), "taken": False}
    return step_row(ordinal, **(fields | changes))


def parent_step(**changes: Any) -> ParentStep:
    fields: dict[str, Any] = {"step_no": (7 << 20) + 3, "task_id": "trip-7", "app": "", "workflow": "trip"}
    fields |= {"state": TaskState.PROCESSING, "undoing": False, "past_count": 0}
    fields |= {"name": "book", "key": "#2", "policy": child_policy()}
    return ParentStep(**(fields | changes))


class ChildRows(OneTask):
    """Rows of a child, with what it is of its parent."""

    def __init__(self, of: Loaded, parent: ParentStep | None) -> None:
        super().__init__(of)
        self._parent = parent

    def parent(self, step_no: int) -> ParentStep | None:
        return self._parent


def undone_child(**task: Any) -> Loaded:
    fields: dict[str, Any] = {
        "state": TaskState.COMPENSATED,
        "undoing": True,
        "failure": failure_text(),
        "locked_by": None,
    }
    fields |= {"ended_at": NOW, "opened_count": 1, "incarnation": 2, "parent_step": (7 << 20) + 3}
    return loaded(done(1), **(fields | task))


def command(verb: Verb, of: Loaded, **changes: Any) -> Operate:
    fields: dict[str, Any] = {"actor": "operator", "by": "ana", "reason": "she says so", "store_id": "store"}
    fields |= {"verb": verb, "task_no": of.task.task_no, "incarnation": of.task.incarnation}
    return Operate(**(fields | changes))


def resubmit(of: Loaded, parent: ParentStep | None) -> Refusal | None:
    """Resubmit a child; a dry run says the same."""
    asked = command(Verb.RESUBMIT, of)
    result = operate(asked, ChildRows(of, parent), LATER)
    refusal = result.refusal if isinstance(result, Refused) else None
    assert find_verb_refusal(asked, of, LATER, parent) == refusal
    return refusal


@pytest.mark.parametrize(
    ("parent", "says"),
    [
        ({"state": TaskState.COMPENSATING, "undoing": True}, "which is compensating"),
        ({"state": TaskState.COMPENSATED, "undoing": True}, "which is compensated"),
        ({"state": TaskState.HELD, "undoing": True}, "which is held"),
        ({"past_count": 3}, "which was undone and runs again without it"),
    ],
)
def test_a_child_that_was_undone_is_not_run_again_alone_once_its_parent_is_undone(
    parent: dict[str, Any], says: str
) -> None:
    of = undone_child()
    refusal = resubmit(of, parent_step(**parent))
    assert refusal is not None
    assert (refusal.verdict, refusal.state) == ("parent_undone", TaskState.COMPENSATED)
    assert f"'t-1' is step book[#2] of task 'trip-7', {says}" in refusal.detail
    assert Verb.RESUBMIT in list_allowed_verbs(of.task, of.life)
    assert Verb.RESUBMIT not in refusal.allowed


@pytest.mark.parametrize(
    "parent",
    [
        parent_step(),
        parent_step(state=TaskState.HELD),
        parent_step(state=TaskState.PROCESSED),
        parent_step(state=TaskState.COMPENSATED, undoing=True, policy=child_policy(is_detached=True)),
        None,
    ],
    ids=["goes on", "held", "processed", "detached", "purged"],
)
def test_a_child_is_run_again_alone_if_its_parent_still_counts_on_it_or_never_did(parent: ParentStep | None) -> None:
    assert resubmit(undone_child(), parent) is None


def test_a_child_that_is_held_is_resubmitted_also_while_its_parent_is_undone() -> None:
    of = loaded(
        state=TaskState.HELD, failure=failure_text("bug"), locked_by=None, ended_at=NOW, parent_step=(7 << 20) + 3
    )
    assert resubmit(of, parent_step(state=TaskState.COMPENSATING, undoing=True)) is None


def refused(verb: Verb, of: Loaded, **changes: Any) -> str:
    asked = command(verb, of, **changes)
    result = operate(asked, OneTask(of), LATER)  # type: ignore[arg-type]  # as in other tests
    assert isinstance(result, Refused)
    assert find_verb_refusal(asked, of, LATER) == result.refusal
    return result.refusal.detail


def test_a_child_that_has_not_ended_gives_its_result_itself() -> None:
    of = loaded(child_row(1), opened_count=1, open_count=1)
    told = refused(Verb.ANSWER, of, step=1, result="7")
    assert told == (
        "task 't-1': book is task 't-1/book.1', which has not ended and gives its result itself: act on task 't-1/book.1'"
    )
    assert "is another task and cannot be in doubt" in refused(Verb.ANSWER, of, step=1, did_not_happen=True)
    named = loaded(child_row(1, policy=child_policy(task_id="hotel-9")), opened_count=1, open_count=1)
    assert "act on task 'hotel-9'" in refused(Verb.ANSWER, named, step=1, result="7")
    assert Verb.ANSWER not in list_allowed_verbs(of.task, of.life)


def test_a_child_that_is_being_undone_gives_its_undo_itself() -> None:
    first = done(1, kind=StepKind.CHILD, name="book", agent="", policy=child_policy())
    undo = undo_row(2, first, agent="", state=StepState.RUNNING, policy=child_policy(), compensation=None)
    fields: dict[str, Any] = {"state": TaskState.COMPENSATING, "undoing": True, "failure": failure_text()}
    of = loaded(first, undo, opened_count=2, open_count=1, **fields)
    assert "book is task 't-1/book.1', which has not ended and gives its undo itself" in refused(
        Verb.ANSWER, of, step=2, result="null"
    )


def test_an_adjustment_of_all_steps_leaves_children_alone_and_says_so() -> None:
    of = loaded(step_row(1), child_row(2), child_row(3), opened_count=3, open_count=3)
    result = operate(command(Verb.ADJUST, of, limits='{"attempts":9}'), OneTask(of), LATER)  # type: ignore[arg-type]
    assert isinstance(result, Change)
    assert [step.ordinal for step in result.steps] == [1]
    (event,) = [one for one in result.events if isinstance(one, OperatorAction)]
    assert event.unchanged == ("limits of 2 child tasks: adjust those tasks themselves",)


def test_limits_of_a_child_are_its_own() -> None:
    of = loaded(child_row(1), opened_count=1, open_count=1)
    assert refused(Verb.ADJUST, of, step=1, limits='{"attempts":9}') == (
        "task 't-1': child book is another task, with limits of its own: adjust that task"
    )
    assert refused(Verb.ADJUST, of, limits='{"attempts":9}') == (
        "task 't-1' has no open step whose limits could change; limits of 1 child task: adjust those tasks themselves"
    )


def test_the_task_of_a_parent_is_not_read_for_a_task_that_has_none() -> None:
    of = loaded(
        done(1), state=TaskState.COMPENSATED, undoing=True, failure=failure_text(), locked_by=None, ended_at=NOW
    )
    assert task_row().parent_step is None
    assert resubmit(of, parent_step(state=TaskState.COMPENSATED)) is None
