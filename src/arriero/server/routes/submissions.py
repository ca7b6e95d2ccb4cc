"""Submitting: one task with its own answer, or many in one request, each with its own verdict."""

import asyncio
import functools
from collections.abc import Coroutine
from typing import Any, TypeVar

import msgspec
from starlette.responses import Response

from ...client.json_payloads import build_named_call
from ...client.row_shapes import to_datetime
from ...client.session import Session
from ...client.submission import SubmissionOptions, SubmitOptions, accept, build_submission
from ...client.task_shapes import EndAnswer
from ...errors import ArrieroError, SequenceUsed, TaskExists
from ...model.answers import Submitted
from ...model.commands import Submit
from ...model.failures import choose_public_text, read_task_failure
from ...model.trace_context import parse_headers
from ...operations.problems import (
    CONVOY_REFUSES,
    INVALID_ARGUMENTS,
    INVALID_REQUEST,
    OUTCOME_UNKNOWN,
    SEQUENCE_USED,
    TASK_EXISTS,
    TOO_MANY_OPEN_TASKS,
    UNKNOWN_WORKFLOW,
    WORKFLOW_PAUSED,
    ProblemDocument,
)
from ...store.contract import Ended
from ..calls import Call, HttpCall
from ..parameters import IdempotencyKey, Prefer, Preferences, read_preferences, write_id
from ..problems import IDEMPOTENCY_KEY_INVALID, Problem, build_problem, build_problem_document
from ..request_body import run_on_text
from ..routing import RouteGroup
from ..scopes import Needs, Scope

T = TypeVar("T")
TraceHeaders = tuple[str | None, str | None]  # traceparent and tracestate

submissions = RouteGroup("submissions")

BATCH_MAX = 400  # submissions that one process has in transit to the store at a time

REFUSALS = (
    TASK_EXISTS,
    SEQUENCE_USED,
    CONVOY_REFUSES,
    TOO_MANY_OPEN_TASKS,
    WORKFLOW_PAUSED,
    UNKNOWN_WORKFLOW,
    INVALID_ARGUMENTS,
    OUTCOME_UNKNOWN,
)


class Submission(SubmissionOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A task to start.

    Args:
        workflow: name of a workflow, or of a step for a task of one step; ``step:NAME`` is always the step.
        arguments: by parameter name.
        id: the task's business id; the same id again is the same task. Without one the server makes one.
    """

    workflow: str
    arguments: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    id: str | None = None


class SubmissionBatch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Tasks to start, 1 to 400. Each is accepted or refused by itself; those of one convoy keep their order."""

    tasks: list[Submission]


class SubmissionAnswer(msgspec.Struct, frozen=True):
    """A task that is durable.

    ``created``: False if it was there before. ``end``: how it ended, if the request waited for that and it has ended.
    """

    id: str
    workflow: str
    created: bool
    end: EndAnswer | msgspec.UnsetType = msgspec.UNSET


class SubmissionVerdict(msgspec.Struct, frozen=True):
    """Verdict on one submission of a batch: the task, or the problem that refuses it."""

    task: SubmissionAnswer | None = None
    problem: ProblemDocument | None = None


class BatchAnswer(msgspec.Struct, frozen=True):
    """Verdicts in the order of the submissions. ``refused``: number of those with a problem."""

    results: tuple[SubmissionVerdict, ...]
    refused: int


EXAMPLE = {"workflow": "fulfil", "arguments": {"order": {"item": "lamp", "amount": 2}}, "id": "order-1001"}


@submissions.operation(
    "POST",
    "/v1/tasks",
    Needs(Scope.SUBMIT),
    is_narrowed=True,
    summary="Start a task. When this answers, the task is durable.",
    body=Submission,
    answer=SubmissionAnswer,
    status=201,
    more_statuses={
        200: "The task was there before.",
        202: "The task is durable; its end was not waited for, or did not come in time.",
    },
    problems=(*REFUSALS, IDEMPOTENCY_KEY_INVALID),
    examples={"order": EXAMPLE, "in a convoy": {**EXAMPLE, "convoy": "customer-7", "priority": 7}},
    answer_example={"id": "order-1001", "workflow": "fulfil", "created": True},
)
async def submit_task(call: Call, idempotency_key: IdempotencyKey = None, prefer: Prefer = None) -> Response:
    wanted = call.read(Submission)
    preferences = read_preferences(prefer)
    session = call.session
    task_id, trace = choose_id(wanted.id, idempotency_key), find_traceparent(call)
    build = functools.partial(build_command, session, wanted, task_id, trace)
    command = await run_on_text(session.ports, call.place.thread_turn, len(call.body), build)
    answer = await submit_command(call, command)
    task = build_answer(command, answer)
    ended = None
    if preferences.wait and not call.place.may_wait():  # the task is durable, so this is not a refusal
        preferences = Preferences(respond_async=True)
    if preferences.wait is not None:
        began_at = session.ports.clock.monotonic()
        ended = await wait_until_ended(call, answer.task_no, preferences.wait)
        await call.confirm(session.ports.clock.monotonic() - began_at)
    if ended is not None:
        task = msgspec.structs.replace(task, end=build_end(ended, call))
    is_late = ended is None and preferences.is_asked
    status = 202 if is_late else 201 if answer.created else 200
    return _respond(call, task, status, preferences)


def _respond(call: HttpCall, task: SubmissionAnswer, status: int, preferences: Preferences) -> Response:
    headers = {"Location": f"{call.root}/v1/tasks/{write_id(task.id)}"}
    if applied := preferences.format_applied():
        headers["Preference-Applied"] = applied
    return Response(call.encode(task), status, headers, "application/json")


@submissions.operation(
    "POST",
    "/v1/tasks:submit",
    Needs(Scope.SUBMIT),
    is_narrowed=True,
    summary="Start up to 400 tasks in one request, each accepted or refused by itself.",
    body=SubmissionBatch,
    examples={"two": {"tasks": [EXAMPLE, {"workflow": "fulfil", "id": "order-1002"}]}},
    answer_example={
        "results": [
            {"task": {"id": "order-1001", "workflow": "fulfil", "created": True}, "problem": None},
            {
                "task": None,
                "problem": {
                    "type": "urn:arriero:problem:invalid-arguments",
                    "title": "The arguments do not fit",
                    "status": 422,
                    "detail": "workflow fulfil: missing order; it takes (order: Order), like "
                    '{"workflow": "fulfil", "arguments": {"order": {"item": "text", "amount": 1}}}',
                    "code": "invalid-arguments",
                },
            },
        ],
        "refused": 1,
    },
)
async def submit_tasks(call: Call) -> BatchAnswer:
    wanted = call.read(SubmissionBatch).tasks
    if not 1 <= len(wanted) <= BATCH_MAX:
        raise Problem(INVALID_REQUEST, f"the body has {len(wanted)} tasks; it may have 1 to {BATCH_MAX}")
    trace = find_traceparent(call)
    verdicts = await asyncio.gather(*(_submit_one(call, one, trace) for one in wanted))
    return BatchAnswer(tuple(verdicts), sum(verdict.problem is not None for verdict in verdicts))


async def _submit_one(call: HttpCall, wanted: Submission, trace: TraceHeaders) -> SubmissionVerdict:
    """Submit one of a batch. All of a large body go through the thread, in their order, because they begin in one turn of the loop."""
    session = call.session
    try:
        build = functools.partial(build_command, session, wanted, wanted.id, trace)
        command = await run_on_text(session.ports, call.place.thread_turn, len(call.body), build)
        return SubmissionVerdict(build_answer(command, await submit_command(call, command)))
    except ArrieroError as error:
        problem = build_problem(error, session)
        if problem is None:
            raise
        return SubmissionVerdict(problem=build_problem_document(problem))


async def submit_command(call: HttpCall, command: Submit) -> Submitted:
    """Commit a submission. Of a task that its caller does not reach, a restricted token learns only that the id is taken.

    Raises: TaskExists, SequenceUsed, ConvoyRefused, TooManyOpenTasks, WorkflowPaused, OutcomeUnknown, StoreError.
    """
    session = call.session
    try:
        answer = accept(await session.submit(command))
    except SequenceUsed:
        if call.caller.reach.is_whole:
            raise
        raise SequenceUsed("another task has this number in the convoy") from None
    except TaskExists:
        if call.caller.reach.is_whole or await session.store.find(command.task_id) is not None:
            raise
        raise _build_taken_id(command) from None
    if answer.created or call.caller.reach.is_whole or await session.store.find(answer.task_id or command.task_id):
        return answer
    raise _build_taken_id(command)


def _build_taken_id(command: Submit) -> TaskExists:
    return TaskExists(f"task_id {command.task_id!r} is taken; use another one")


def choose_id(in_body: str | None, key: str | None) -> str | None:
    """Choose the task's id from the body and the header. Raises Problem - they differ, or the header is not an id."""
    if key is None:
        return in_body
    if len(key) >= 2 and key[0] == key[-1] == '"':  # as the header's draft standard writes it
        key = key[1:-1]
    if not key.isascii():
        raise Problem(
            IDEMPOTENCY_KEY_INVALID, "the header Idempotency-Key is not ASCII; give such an id in the body, as `id`"
        )
    if in_body is not None and in_body != key:
        raise Problem(
            IDEMPOTENCY_KEY_INVALID,
            f"the header Idempotency-Key is {key!r}, and the body's id is {in_body!r}; give one of them, or the same twice",
        )
    return key


def find_traceparent(call: HttpCall) -> TraceHeaders:
    """Find the trace that the caller is in. A header that is not W3C Trace Context is ignored, as its specification says."""
    headers = call.request.headers
    given, state = headers.getlist("traceparent"), ",".join(headers.getlist("tracestate"))
    if len(given) != 1 or parse_headers(given[0], state) is None:
        return None, None
    return given[0], state


def build_command(session: Session, wanted: Submission, task_id: str | None, trace: TraceHeaders) -> Submit:
    """Build the command that starts a task. Raises InvalidInput.

    ``trace``: what ``find_traceparent`` has found.
    """
    shared = {name: getattr(wanted, name) for name in SubmissionOptions.__struct_fields__}
    options = SubmitOptions(task_id=task_id, traceparent=trace[0], tracestate=trace[1], **shared)
    return build_submission(session, build_named_call(session, wanted.workflow, wanted.arguments), options)


def build_answer(command: Submit, answer: Submitted) -> SubmissionAnswer:
    """Build what is said of a task that is durable."""
    return SubmissionAnswer(answer.task_id or command.task_id, command.workflow, answer.created)


async def wait_until_ended(call: HttpCall, task_no: int, seconds: float) -> Ended | None:
    """Wait for the end of a task; None: it has not come in time, or the server is about to end."""
    return await wait_until_shutdown(call, call.session.waiting.wait_until_ended(task_no, seconds))


async def wait_until_shutdown(call: HttpCall, what: Coroutine[Any, Any, T]) -> T | None:
    """Wait for what a request waits for; None: it has not come in time, or the server is about to end."""
    waiting = asyncio.ensure_future(what)
    ending = asyncio.ensure_future(call.shutdown.wait())
    try:
        await asyncio.wait({waiting, ending}, return_when=asyncio.FIRST_COMPLETED)
        return waiting.result() if waiting.done() else None
    except TimeoutError:
        return None
    finally:
        ending.cancel()
        waiting.cancel()


def build_end(ended: Ended, call: HttpCall) -> EndAnswer:
    """Build how a task ended."""
    task = ended.task
    failure = None if task.failure is None else read_task_failure(task.failure)
    details: dict[str, Any] = {}
    if failure is not None:
        details = {"step": failure.step, "code": failure.code, "reason": failure.reason}
        details["public"] = choose_public_text(failure, task.state)
    if task.output is not None:
        details["output"] = msgspec.Raw(task.output.encode())
    return EndAnswer(
        state=str(task.state),
        ended_at=to_datetime(task.ended_at),
        open_compensations=ended.open_compensations,
        payloads=call.payloads,
        **details,
    )
