"""The rule of the cap on open tasks."""

from store_world import submission

from arriero.core.tokens import refuse_beyond_cap
from arriero.model.answers import TOO_MANY_OPEN_TASKS


def test_a_submission_is_refused_when_its_submitter_has_as_many_open_tasks_as_the_cap() -> None:
    command = submission("a", submitter="0011", open_tasks_max=1_000)
    assert refuse_beyond_cap(command, 0) is None
    assert refuse_beyond_cap(command, 999) is None
    for open_tasks in (1_000, 1_001):
        refused = refuse_beyond_cap(command, open_tasks)
        assert refused is not None
        assert refused.verdict == TOO_MANY_OPEN_TASKS
        assert f"{open_tasks:,} tasks of token 0011 are open, and its open_tasks_max is 1,000" in refused.detail


def test_a_submission_without_a_cap_is_never_refused() -> None:
    assert refuse_beyond_cap(submission("a"), 1_000_000) is None
