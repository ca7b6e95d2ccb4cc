"""Questions to operators: those that are open, and the check of an answer by the code that asks."""

from collections.abc import AsyncGenerator, Callable
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from ..core.apps import find_code, is_another_app
from ..core.replay import identify_step
from ..core.task_run import TaskRun
from ..errors import InvalidInput
from ..model import Instant, Loaded, StepRow, StepState, TaskState
from ..model.instants import as_datetime
from ..model.questions import QuestionRow, has_passed, show_question
from ..model.signals import name_wait
from ..model.tokens import ANY_REACH, Reach
from ..payloads import codec
from ..payloads.plain_values import fill_in_defaults
from ..store.state_store import StateStore
from ..text.escaping import shell_argument
from ..text.format import format_answer_command
from .session import Session

T = TypeVar("T")
PAGE = 1_000
POOL = "replay\t"  # no Agent has a name with a tab, so none shares the thread


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
        is_over: its time is over, so no answer is taken. Its task does not know yet: it is paused, or no process runs it.
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
    is_over: bool = False


def build_open_question(row: QuestionRow, now: Instant) -> OpenQuestion:
    """A question for operators and programs. What of it cannot be read is shown as it stands."""
    asked, is_over = show_question(row.arguments), has_passed(row.not_before, now)
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
        command=format_explain_command(row.task_id) if is_over else format_answer_command(row.task_id, name),
        is_over=is_over,
    )


def format_explain_command(task_id: str) -> str:
    """Format the command that says why the task of a question whose time is over does not continue."""
    return f"arriero task explain {shell_argument(task_id)}"


async def list_open_questions(
    store: StateStore, of: str = "", *, within: Reach = ANY_REACH
) -> AsyncGenerator[OpenQuestion]:
    """Open questions in the order in which they were asked, read page by page. Raises StoreError."""
    after = 0
    while page := await store.questions(of=of, after=after, limit=PAGE, within=within):
        for row in page:
            yield build_open_question(row, store.now())
        after = page[-1].no


def check_of(of: str | None) -> str:
    """Check who is asked, as a caller names them. None: anyone. Raises InvalidInput."""
    return "" if of is None else codec.check_id(of, "of")


async def check_by_code(session: Session, loaded: Loaded, wait: StepRow, check: Callable[[TaskRun], T]) -> T | None:
    """Let the code of a task check a value for one of its waits: nothing else has the types.

    The code runs from the record, in memory, as after a crash. Records of any length are run, because a question must be
    answered whatever its number. It is done in a thread, one task at a time, so that the event loop continues.

    Args:
        check: looks at the code, which has come to its waits. Called in the thread.
    Returns: what ``check`` does; None: the wait is not open, or the code is not here.
    Raises: what ``check`` raises.
    """
    task = loaded.task
    code = None if is_another_app(session.app, task.app) else find_code(session.codes, task)
    if code is None or task.state is not TaskState.PROCESSING or wait.state is not StepState.PENDING:
        return None

    def run_and_check() -> T:
        run = TaskRun(loaded, code)
        try:
            return check(run)
        finally:
            run.close()

    return await session.ports.run_in_thread(POOL, 1, run_and_check, lambda: None)


async def check_answer(session: Session, loaded: Loaded, row: StepRow, text: str) -> str:
    """Check the answer of a question against the form for which the code asks now, and return it as it is recorded.

    Of a question that is not open the text is returned as it is, because the store's refusal explains more.

    Raises: InvalidInput - it does not fit the form; the code is not here, or is not that of the task.
    """
    task = loaded.task
    if task.state is not TaskState.PROCESSING or row.state is not StepState.PENDING:
        return text
    recorded = await check_by_code(session, loaded, row, lambda run: _write_answer(run, row, text))
    if recorded is None:
        of = f" of App {task.app!r}" if is_another_app(session.app, task.app) else ""
        raise InvalidInput(
            f"workflow {task.workflow!r}{of} is not in this App: its types are not known here, so {row.label} of task"
            f" {task.task_id!r} cannot be checked"
        )
    return recorded


def _write_answer(run: TaskRun, row: StepRow, text: str) -> str:
    """The JSON text of an answer as it is recorded. Raises InvalidInput."""
    asked = None if run.execution is None else run.execution.asked.get(identify_step(row))
    if run.broken is not None or asked is None or asked.wait is None:
        why = "it does not ask this question" if run.broken is None else run.broken.reason
        raise InvalidInput(
            f"the code here is not that of task {run.task.task_id!r}: {why}; answer with the release that runs it"
        )
    recorded = _rewrite(asked.wait.read, text, row)
    if _rewrite(asked.wait.read, recorded, row) != recorded:
        raise InvalidInput(f"answer of {row.label}: its form reads what it wrote as another value: {recorded}")
    return recorded


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
