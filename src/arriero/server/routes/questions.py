"""Questions of tasks to operators. ``POST /v1/tasks/{id}:answer`` answers one, as it answers a step."""

from typing import Annotated

import msgspec
from fastapi import Path, Query

from ...client.questions import OpenQuestion, build_open_question, check_of
from ...errors import UnknownName
from ...model import NUMBER_MAX
from ...operations.problems import UNKNOWN_NAME
from ..calls import Call
from ..cursors import CURSOR_INVALID, open_cursors
from ..parameters import LIMIT, Cursor, Limit
from ..routing import RouteGroup
from ..scopes import Needs, Scope

questions = RouteGroup("questions")
QUESTION_EXAMPLE = {
    "number": 7,
    "task_id": "order-1001",
    "workflow": "fulfil",
    "app": "shop",
    "name": "question:finance",
    "of": "finance",
    "question": "Pay out 9,000 EUR?",
    "form": {"type": "boolean"},
    "operators": 2,
    "since": "2026-11-20T14:15:17.5Z",
    "until": "2026-11-22T14:15:17.5Z",
    "command": "arriero task answer order-1001 question:finance --result JSON --reason TEXT",
    "is_over": False,
}


class QuestionsAnswer(msgspec.Struct, frozen=True):
    """A page of open questions, the oldest first. ``next``: the cursor of the next page; None: this was the last one."""

    questions: tuple[OpenQuestion, ...]
    next: str | None


@questions.operation(
    "GET",
    "/v1/questions",
    Needs(Scope.READ),
    is_narrowed=True,
    summary="List the questions that tasks ask operators, with the JSON Schema of each answer.",
    problems=(CURSOR_INVALID,),
    answer_example={
        "questions": [
            QUESTION_EXAMPLE,
        ],
        "next": None,
    },
)
async def list_questions(
    call: Call,
    of: Annotated[str | None, Query(description="Only questions to these operators, as the code names them.")] = None,
    limit: Limit = LIMIT,
    cursor: Cursor = None,
) -> QuestionsAnswer:
    store, listing = call.session.store, ["questions", of]
    cursors = await open_cursors(store)
    after = cursors.read_number(cursor, listing)
    rows = await store.questions(of=check_of(of), after=after, limit=limit + 1, within=call.caller.reach)
    more = cursors.write(listing, rows[limit - 1].no) if len(rows) > limit else None
    return QuestionsAnswer(tuple(build_open_question(row, store.now()) for row in rows[:limit]), more)


@questions.operation(
    "GET",
    "/v1/questions/{number}",
    Needs(Scope.READ),
    is_narrowed=True,
    summary="An open question of a task to operators, with the JSON Schema of its answer.",
    problems=(UNKNOWN_NAME,),
    answer_example=QUESTION_EXAMPLE,
)
async def show_question(
    call: Call, number: Annotated[int, Path(ge=1, le=NUMBER_MAX, description="Its number, as the list has it.")]
) -> OpenQuestion:
    store = call.session.store
    rows = await store.questions(after=number - 1, limit=1, within=call.caller.reach)
    if not rows or rows[0].no != number:
        raise UnknownName(
            f"question {number} is not open: it was answered, or its task has moved on; see `arriero question list`"
        )
    return build_open_question(rows[0], store.now())
