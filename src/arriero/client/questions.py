"""Questions to operators: those that are open, and the check of an answer against the form that the code asks for."""

from collections.abc import AsyncGenerator, Callable, Mapping
from datetime import datetime
from typing import Any

import msgspec

from ..core.replay import identify_step
from ..core.task_run import TaskRun
from ..errors import InvalidInput
from ..model import Loaded, StepRow, StepState, TaskState
from ..model.instants import as_datetime
from ..model.questions import QuestionRow, show_question
from ..model.signals import is_question, name_wait
from ..model.tokens import ANY_REACH, Reach
from ..payloads import codec
from ..payloads.plain_values import fill_in_defaults
from ..runtime.code import Code
from ..runtime.driver_parts import run_code
from ..store.state_store import StateStore
from ..text.escaping import shell_argument

PAGE = 1_000


class OpenQuestion(msgspec.Struct, frozen=True):
    """A question of a task that waits for the answer of an operator.

    Args:
        number: of its alert; later questions have larger ones.
        task_id, workflow, app: of the task that asks.
        name: to answer it by: ``question:finance``, the second one of a task ``question:finance[#2]``.
        of: who is asked.
        question: for operators.
        form: JSON Schema of the answer.
        operators: number of operators who must give the same answer.
        since: when it was asked. ``until``: when its time is over; None: it waits as long as it takes.
        command: what an operator types next.
    """

    number: int
    task_id: str
    workflow: str
    app: str
    name: str
    of: str
    question: str
    form: msgspec.Raw
    operators: int
    since: datetime
    until: datetime | None
    command: str


def build_open_question(row: QuestionRow) -> OpenQuestion:
    """A question for operators and programs. What of it cannot be read is shown as it stands."""
    asked = show_question(row.arguments)
    name = name_wait("question", row.of) + ("" if row.key == "#1" else f"[{row.key}]")
    return OpenQuestion(
        number=row.no,
        task_id=row.task_id,
        workflow=row.workflow,
        app=row.app,
        name=name,
        of=row.of,
        question=asked.question,
        form=asked.form,
        operators=asked.operators,
        since=as_datetime(row.opened_at),
        until=None if row.not_before is None else as_datetime(row.not_before),
        command=format_answer_command(row.task_id, name),
    )


def format_answer_command(task_id: str, name: str) -> str:
    """Format the command that answers a question."""
    return f"arriero task answer {shell_argument(task_id)} {shell_argument(name)} --result JSON --by NAME --reason TEXT"


async def list_open_questions(
    store: StateStore, of: str = "", *, within: Reach = ANY_REACH
) -> AsyncGenerator[OpenQuestion]:
    """Open questions in the order in which they were asked, read page by page. Raises StoreError."""
    after = 0
    while page := await store.questions(of=of, after=after, limit=PAGE, within=within):
        for row in page:
            yield build_open_question(row)
        after = page[-1].no


def check_of(of: str | None) -> str:
    """Check who is asked, as a caller names them. None: anyone. Raises InvalidInput."""
    return "" if of is None else codec.check_id(of, "of")


def check_answer(loaded: Loaded, codes: Mapping[str, Code], row: StepRow, text: str) -> str:
    """Check the answer of a question against the form for which the code asks now, and return it as it is recorded.

    The code runs from the record, as after a crash: nothing else has its types. Of a question that is not open the text is returned as
    it is, because the store's refusal explains more.

    Raises: InvalidInput - it does not fit the form; the code is not here, or is not that of the task.
    """
    if loaded.task.state is not TaskState.PROCESSING or row.state is not StepState.PENDING or not is_question(row):
        return text
    code, task_id = codes.get(loaded.task.workflow), loaded.task.task_id
    if code is None:
        raise InvalidInput(
            f"workflow {loaded.task.workflow!r} is not in this App: its types are not known here, so {row.label} of task"
            f" {task_id!r} cannot be checked"
        )
    run = run_code(loaded.task, lambda: TaskRun(loaded, code))
    try:
        asked = None if run.execution is None else run.execution.asked.get(identify_step(row))
        if run.broken is not None or asked is None or asked.wait is None:
            why = "it does not ask this question" if run.broken is None else run.broken.reason
            raise InvalidInput(
                f"the code here is not that of task {task_id!r}: {why}; answer with the release that runs it"
            )
        recorded = _rewrite(asked.wait.read, text, row)
        if _rewrite(asked.wait.read, recorded, row) != recorded:
            raise InvalidInput(f"answer of {row.label}: its form reads what it wrote as another value: {recorded}")
        return recorded
    finally:
        run.close()


def _rewrite(read: Callable[[str], Any], text: str, row: StepRow) -> str:
    """The JSON text of an answer as its form writes it. Raises: InvalidInput - it does not fit the form."""
    answer = _read(read, text, row)
    fill_in_defaults(answer)
    return codec.encode_untyped(answer, f"answer of {row.label}")


def _read(read: Callable[[str], Any], text: str, row: StepRow) -> Any:
    try:
        return read(text)
    except InvalidInput as error:
        form = bytes(show_question(row.arguments).form).decode()
        raise InvalidInput(f"{error}; the answer is JSON of the form {form}") from error
