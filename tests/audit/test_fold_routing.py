"""A step that was taken is dispatched to another Agent only if it is interchangeable; its compensation goes where it was done."""

from collections.abc import Callable
from typing import Any

import pytest
from core_history import Story

from arriero.audit.check import check

Where = Callable[[Story], None]


def judge(story: Story) -> list[str]:
    return [violation.invariant for violation in check(story.rows(), complete=True)]


def dispatches(story: Story, task: str, step: int) -> list[dict[str, Any]]:
    events = [event for commit in story.of(task) for event in commit.events]
    return [event for event in events if event["type"] == "step.dispatched" and event["step"] == step]


def find_tried_again(story: Story) -> tuple[str, int]:
    """A step of the clean history with more than one attempt."""
    for commit in story.commits:
        for event in commit.events:
            if event["type"] == "step.dispatched" and len(dispatches(story, commit.task, event["step"])) > 1:
                return commit.task, event["step"]
    raise AssertionError("the clean history has no second attempt")


def test_a_second_attempt_at_another_agent_is_convicted() -> None:
    story = Story()
    dispatches(story, *find_tried_again(story))[1]["agent"] = "elsewhere"
    assert judge(story)[:1] == ["I74"]


def test_the_first_attempt_may_go_to_another_agent_and_the_second_stays_there() -> None:
    story = Story()
    task, step = find_tried_again(story)
    first, second, *_ = dispatches(story, task, step)
    first["agent"] = "elsewhere"
    found = check(story.rows(), complete=True)
    assert not [one for one in found if "was dispatched to" in one.detail]
    second["agent"] = story.event(task, "step.opened", step=step)["agent"]
    assert judge(story)[:1] == ["I74"]


def test_an_interchangeable_step_moves_between_attempts() -> None:
    story = Story()
    task, step = find_tried_again(story)
    story.event(task, "step.opened", step=step)["routing"] = "interchangeable"
    dispatches(story, task, step)[1]["agent"] = "elsewhere"
    assert "I74" not in judge(story)


def opened_compensation(story: Story) -> tuple[str, dict[str, Any]]:
    for commit in story.commits:
        for event in commit.events:
            if event["type"] == "step.opened" and event["kind"] == "compensation":
                return commit.task, event
    raise AssertionError("the clean history has no compensation")


@pytest.mark.parametrize("changes", [{"agent": "elsewhere"}, {"routing": "interchangeable"}])
def test_a_compensation_for_another_agent_or_one_that_may_move_is_convicted(changes: dict[str, Any]) -> None:
    story = Story()
    opened_compensation(story)[1].update(changes)
    assert set(judge(story)) == {"I74"}


def test_a_compensation_of_an_interchangeable_step_may_go_to_any_provider() -> None:
    story = Story()
    task, opened = opened_compensation(story)
    story.event(task, "step.opened", step=opened["undoes"])["routing"] = "interchangeable"
    opened.update(agent="elsewhere", routing="interchangeable")
    assert judge(story) == []


def test_a_compensation_is_not_dispatched_to_another_agent_even_at_first() -> None:
    story = Story()
    task, opened = opened_compensation(story)
    story.event(task, "compensation.dispatched", step=opened["step"])["agent"] = "elsewhere"
    assert set(judge(story)) == {"I74"}


def test_a_pinned_step_that_was_taken_is_not_opened_again_for_another_agent() -> None:
    story = Story()
    for commit in story.commits:
        for event in commit.events:
            if event["type"] != "step.reopened" or not dispatches(story, commit.task, event["step"]):
                continue
            story.event(commit.task, "step.opened", step=event["step"])["routing"] = "pinned"
            event["agent"] = "elsewhere"
            assert judge(story)[:1] == ["I74"]
            return
    raise AssertionError("the clean history opens no step again that was taken")
