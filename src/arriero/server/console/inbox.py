"""The inbox of operators: the questions of tasks, each with a form made from the schema of its answer."""

import secrets
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NamedTuple

import msgspec
from fastapi import Path, Query
from starlette.responses import RedirectResponse, Response

from ...client.questions import OpenQuestion
from ...errors import ApprovalNeeded, ArrieroError, UnknownTask
from ...model import NUMBER_MAX
from ...operations.problems import find_meaning
from ..calls import Call, HttpCall
from ..parameters import LIMIT, Cursor, Limit
from ..problems import Problem, build_problem
from ..routes.questions import QuestionsAnswer
from ..scopes import Needs, Scope
from .acting import ask_with_body, find_act, get_sent_forms, receive_form
from .asking import ask, ask_for_list, may_ask
from .cookies import keep_outcome
from .page import Page, page
from .schema_forms import ValueField, build_value_fields, fill_in, read_value

OF_LENGTH_MAX = 300
APPROVALS_READ_MAX = 10  # questions of a page whose history is read for approvals; as many tasks with a verb that waits
ACTS_READ_MAX = 200  # the newest commits of operators, in which approvals are looked for
APPROVE = "approve "  # begins the verb of an act that is one approval of several
VALUE = "answer"  # begins the names of the inputs of the answer


class WaitingVerb(NamedTuple):
    """A verb on a task that has an approval and needs another one. ``says``: who has approved it, and what is typed for the next."""

    task_id: str
    verb: str
    says: str


Number = Annotated[int, Path(ge=1, le=NUMBER_MAX, description="The number of the question.")]


@page("/inbox", Needs(Scope.READ), "Questions of tasks to operators.", is_live=True)
async def show_inbox(
    call: Call,
    of: Annotated[str | None, Query(max_length=OF_LENGTH_MAX)] = None,
    limit: Limit = LIMIT,
    cursor: Cursor = None,
) -> Page:
    listed, refused = await ask_for_list(
        call, "list_questions", QuestionsAnswer((), None), "filter", of=of, limit=limit, cursor=cursor
    )
    several = [one for one in listed.questions if one.operators > 1][:APPROVALS_READ_MAX]
    context = {
        "listed": listed,
        "refused": refused,
        "of": of or "",
        "cursor": cursor,
        "given": {"of": of, "limit": None if limit == LIMIT else limit},
        "asked": sorted({one.of for one in listed.questions}),
        "approvals": {one.number: await list_approvals(call, one.task_id, "answer") for one in several},
        "may_answer": may_ask(call, "answer_task"),
        "waiting": () if cursor or of else await list_waiting_verbs(call),
    }
    return Page("inbox.html", "Inbox", context, status=422 if refused else 200)


async def list_waiting_verbs(call: HttpCall) -> tuple[WaitingVerb, ...]:
    """List verbs that wait for another operator, by the newest acts; an answer waits with its question."""
    if not may_ask(call, "list_operator_acts"):
        return ()
    acts = (await ask(call, "list_operator_acts", limit=ACTS_READ_MAX)).acts
    approved = [(one.subject, one.verb.removeprefix(APPROVE)) for one in acts if one.verb.startswith(APPROVE)]
    asked = [one for one in dict.fromkeys(approved) if one[0] and one[1] != "answer"][:APPROVALS_READ_MAX]
    return tuple(
        [
            WaitingVerb(task_id, verb, says)
            for task_id, verb in asked
            for says in await list_approvals(call, task_id, verb)
        ]
    )


async def list_approvals(call: HttpCall, task_id: str, verb: str) -> tuple[str, ...]:
    """List in sentences who has approved a verb on a task that needs several operators."""
    try:
        explanation = await ask(call, "explain_task", task_id=task_id)
    except UnknownTask:  # it was purged meanwhile
        return ()
    return tuple(one.says for one in explanation.reasons if one.kind == "approval" and one.says.startswith(verb))


@page("/inbox/{number}", Needs(Scope.OPERATE, Scope.READ), "The form to answer a question.")
async def show_question_form(call: Call, number: Number) -> Page:
    question = await ask(call, "show_question", number=number)
    return await _build_form(call, question, _build_field(question))


@page("/inbox/{number}", Needs(Scope.OPERATE, Scope.READ), "Answer a question.", method="POST")
async def answer_question(call: Call, number: Number) -> Page | Response:
    sent, one = await receive_form(call)
    forms = get_sent_forms(call)
    return await forms.run_once(call, one.get("once", ""), lambda: _answer(call, number, sent, one.get("reason", "")))


async def _answer(call: HttpCall, number: int, sent: Mapping[str, Sequence[str]], reason: str) -> Page | Response:
    """Answer a question, or keep an approval of its answer. Returns: a page if nothing was done."""
    question: OpenQuestion = await ask(call, "show_question", number=number)
    field = _build_field(question)
    act = find_act("answer_task", question.task_id)
    try:
        value = read_value(field, sent)
        result: dict[str, Any] = {} if value is None else {"result": msgspec.Raw(value)}
        await ask_with_body(call, act, {"step": question.name, "reason": reason, **result})
        says = f"Answered: {question.name} of task {question.task_id}."
    except ApprovalNeeded as error:  # it was kept, and the next operator decides
        says = f"Your approval is kept: {error}."
    except (Problem, ArrieroError) as error:
        if isinstance(error, ArrieroError) and find_meaning(type(error)).problem.status >= 500:
            raise
        problem = error if isinstance(error, Problem) else build_problem(error, call.session)
        assert problem is not None  # bugs were raised
        refused = f"{problem.detail}."
        return await _build_form(
            call, question, fill_in(field, sent), reason=reason, refused=refused, status=problem.kind.status
        )
    response = RedirectResponse(f"{call.root}/inbox", 303)
    keep_outcome(call.request, response, says)
    return response


def _build_field(question: OpenQuestion) -> ValueField:
    return build_value_fields(bytes(question.form), name=VALUE, label="Answer")


async def _build_form(
    call: HttpCall, question: OpenQuestion, field: ValueField, *, reason: str = "", refused: str = "", status: int = 200
) -> Page:
    context = {
        "question": question,
        "field": field,
        "reason": reason,
        "refused": refused,
        "once": secrets.token_urlsafe(12),
        "approvals": await list_approvals(call, question.task_id, "answer") if question.operators > 1 else (),
    }
    return Page("question.html", "Answer a question", context, status=status)
