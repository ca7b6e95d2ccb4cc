"""Plain data: questions to operators. A question is a wait (``model.signals``) that an operator answers."""

import msgspec

from ..errors import UnreadableRow
from . import Instant, StepRow
from .signals import name_wait

_PREFIX = name_wait("question", "")


class AskedQuestion(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A question to operators, as it is recorded in the row that waits for the answer.

    Args:
        question: for operators.
        form: JSON Schema of the answer.
        operators: number of operators who must give the same answer.
    """

    question: str
    form: msgspec.Raw = msgspec.Raw(b"{}")
    operators: int = 1


_decode = msgspec.json.Decoder(AskedQuestion).decode


def read_question(step: StepRow) -> AskedQuestion:
    """The question of a row. Raises: UnreadableRow - its arguments cannot be read."""
    try:
        return _decode(step.arguments)
    except (msgspec.MsgspecError, UnicodeError):
        what = f"column arguments of table step, of step {step.ordinal} of task number {step.task_no}"
        raise UnreadableRow(what, table="step", column="arguments", task_no=step.task_no) from None


def show_question(arguments: str) -> AskedQuestion:
    """The question in the arguments of a row, to be shown; the arguments themselves if they cannot be read."""
    try:
        return _decode(arguments)
    except (msgspec.MsgspecError, UnicodeError):
        return AskedQuestion(arguments)


def describe_question(step: StepRow) -> dict[str, str]:
    """Describe a question for the submitter of its task: who is asked, and the text."""
    return {"of": step.name.removeprefix(_PREFIX), "question": show_question(step.arguments).question}


def has_passed(until: Instant | None, now: Instant) -> bool:
    """Returns True if the time of a question is over: no answer is taken from that instant on."""
    return until is not None and until <= now


class QuestionRow(msgspec.Struct, frozen=True, gc=False):
    """An open question with its task, in the order in which questions were asked.

    Args:
        no: of its alert, which orders the list.
        ordinal, key, arguments, not_before: of the row that waits.
        of: the operators who are asked.
    """

    no: int
    task_id: str
    workflow: str
    app: str
    ordinal: int
    key: str
    of: str
    arguments: str
    opened_at: Instant
    not_before: Instant | None
