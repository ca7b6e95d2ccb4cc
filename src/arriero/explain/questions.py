"""Findings of ``arriero doctor`` about questions to operators: a question is fine until its answer is late."""

from collections.abc import Sequence

from ..model import Instant, seconds_between
from ..model.questions import QuestionRow, has_passed
from ..text.escaping import one_line, shell_argument, shell_word
from ..text.format import format_count, format_count_with_verb, format_instant_and_age
from .doctor import Finding

LATE_SECONDS = 86_400.0  # after which a question without a limit is late
LATE_SHARE = 0.75  # of the time that it has; then there is still some to answer it in


def is_late(question: QuestionRow, now: Instant) -> bool:
    """Returns True if an operator should have answered a question by now: most of its time is over, or a day without a limit."""
    waited = seconds_between(question.opened_at, now)
    if question.not_before is None:
        return waited >= LATE_SECONDS
    return waited >= LATE_SHARE * seconds_between(question.opened_at, question.not_before)


def diagnose_questions(questions: Sequence[QuestionRow], now: Instant, *, has_more: bool) -> list[Finding]:
    """Diagnose open questions.

    Args:
        questions: in the order in which they were asked. ``has_more``: there are more than these.
    Returns: none if no question is open; of late questions who is asked and the command that lists them; of those whose time is over
        the command that says why the task does not know yet.
    """
    over = [question for question in questions if has_passed(question.not_before, now)]
    waiting = [question for question in questions if question not in over]
    return [*_diagnose_waiting(waiting, now, has_more=has_more), *_diagnose_over(over, now)]


def _diagnose_over(over: Sequence[QuestionRow], now: Instant) -> list[Finding]:
    if not over:
        return []
    first = over[0]
    assert first.not_before is not None
    says = (
        f"no answer is taken any longer to {format_count(len(over), 'question')}, and the code does not know yet; the first, of task"
        f" {one_line(first.task_id)} to {one_line(first.of)}, had time until {format_instant_and_age(first.not_before, now)}"
    )
    return [Finding("information", "questions", says, f"arriero task explain {shell_argument(first.task_id)}")]


def _diagnose_waiting(questions: Sequence[QuestionRow], now: Instant, *, has_more: bool) -> list[Finding]:
    if not questions:
        return []
    late = [question for question in questions if is_late(question, now)]
    if not late:
        more = " or more" if has_more else ""
        return [
            Finding("fine", "questions", f"{format_count(len(questions), 'question')}{more} to operators, none late")
        ]
    first = late[0]
    says = (
        f"{format_count_with_verb(len(late), 'question')} late; the first, of task {one_line(first.task_id)} to {one_line(first.of)},"
        f" waits since {format_instant_and_age(first.opened_at, now)}"
    )
    return [Finding("care", "questions", says, f"arriero question list --of {shell_word(first.of)}")]
