"""What a history shows of children beside the violations of ``test_check``: answers in place of an undo, and what was purged."""

from core_history import Event, Story

from arriero.audit.check import check

STORE = ""


def judge(story: Story) -> list[tuple[str, str]]:
    return [(violation.invariant, violation.task) for violation in check(story.rows())]


def resubmission(story: Story, child: str) -> Event:
    """The event by which an operator runs a child again that has been undone once."""
    ended = story.event(child, "task.terminal", state="compensated")
    action = story.event("hotel", "operator.action")
    told = {"verb": "resubmit", "by": "ana", "before": "compensated", "after": "pending", "anew": True}
    return {**action, **told, "incarnation": 2, "fence": ended["fence"] + 1, "not_before": story.of(child)[-1].at}


def test_a_task_that_is_compensated_while_a_child_is_open_is_convicted() -> None:
    story = Story()
    commit = story.append("flight", resubmission(story, "flight"))
    story.commits.remove(commit)
    story.commits.insert(story.commits.index(story.commit("trip", "compensation.reached")) + 1, commit)
    assert judge(story) == [("I84", "trip"), ("I84", "trip")]  # at that moment, and at the end


def test_a_child_may_run_again_alone_before_its_parent_asks_for_its_undo() -> None:
    """The parent has to ask for its undo then, as the incarnation that it records shows."""
    story = Story()
    commit = story.append("flight", resubmission(story, "flight"))
    story.commits.remove(commit)
    story.commits.insert(story.commits.index(story.commit("trip", "undo.begun")) + 1, commit)
    assert judge(story)[0] == ("I83", "trip")
    story.event("trip", "compensation.recorded", step=4)["fence"] = 2
    assert judge(story)[0] == ("I83", "trip")  # it is open


def test_a_child_whose_undo_an_operator_answered_may_stand() -> None:
    story = Story()
    for commit in story.of("hotel")[-4:]:
        story.commits.remove(commit)
    assert story.event("hotel", "task.terminal")["state"] == "processed"
    recorded = story.event("trip", "compensation.recorded", step=5)
    answered = {"type": "step.answered", "step": 5, "fence": 9, "happened": True, "number": recorded["number"]}
    commit = story.commit("trip", "compensation.recorded", step=5)
    commit.events[commit.events.index(recorded)] = {**answered, "result": recorded["result"]}
    assert judge(story) == []


def test_an_answer_in_place_of_a_child_that_runs_is_convicted() -> None:
    story = Story()
    recorded = story.event("trip", "step.recorded", step=1)
    answered = {"type": "step.answered", "step": 1, "fence": 9, "happened": True, "number": recorded["number"]}
    commit, ended = story.commit("trip", "step.recorded", step=1), story.commit("hotel", "task.terminal")
    commit.events[commit.events.index(recorded)] = {**answered, "result": recorded["result"]}
    assert judge(story) == []
    story.commits.remove(ended)
    story.commits.insert(story.commits.index(commit) + 1, ended)
    assert judge(story) == [("I83", "trip")]


def test_a_child_that_is_missing_convicts_only_where_no_task_was_purged() -> None:
    story = Story()
    for commit in story.of("hotel"):
        story.commits.remove(commit)
    assert judge(story) == []
    story.remove(STORE, "tasks.purged")
    assert set(judge(story)) == {("I83", "trip")}


def test_a_parent_that_is_missing_convicts_only_where_no_task_was_purged() -> None:
    story = Story()
    for commit in story.of("trip"):
        story.commits.remove(commit)
    assert judge(story) == []
    story.remove(STORE, "tasks.purged")
    assert {task for _, task in judge(story)} == {"hotel", "flight", "postcard"}
