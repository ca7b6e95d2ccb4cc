"""The verbs of operators on tasks: on one, on a bounded part of those that a filter names, and the assignment to an App.

A dry run on many tasks gives a plan: each task that allows the verb, with its incarnation. The plan may be sent again if an answer
was lost: what the first request did is reported as done before, and nothing is done twice.
"""

from collections.abc import AsyncIterator, Sequence
from typing import Annotated, Any, Literal

import msgspec

from ...client.app_assignment import Assignment, TokenLeftBehind, assign
from ...client.json_payloads import build_verb_fields
from ...client.session import Session, load_task
from ...client.task_shapes import StandingTask, load_standing_task
from ...client.task_verbs import (
    Acted,
    FieldsBuilder,
    check_signature,
    load_task_to_act,
    operate_rows,
    operate_task,
    preview_verb,
    refuse_all_tasks,
)
from ...client.tasks import TaskSelector
from ...errors import InvalidInput
from ...events import read_events_to_show
from ...events.task import OperatorAction
from ...model import NUMBER_MAX, Instant, Loaded, TaskRow, Verb
from ...model.verb_rules import VERBS, VerbArguments
from ...operations.problems import (
    APPROVAL_NEEDED,
    INVALID_ARGUMENTS,
    TASK_UNKNOWN,
    UNKNOWN_NAME,
    UNREADABLE,
    VERB_REFUSED,
)
from ...payloads.codec import check_id
from ...store.state_store import StateStore
from ..calls import Call, HttpCall, narrow_filter
from ..cursors import CURSOR_INVALID, load_page, open_cursors, write_position
from ..parameters import LIMIT_MAX, TaskId
from ..routing import RouteGroup
from ..scopes import Needs, Scope, may_list_tokens

PLANNED_MAX = 200  # tasks of one plan


class PlannedTask(msgspec.Struct, frozen=True, array_like=True):
    """A task on which a verb is to be carried out, as it was when an operator decided."""

    task_no: Annotated[int, msgspec.Meta(ge=1, le=NUMBER_MAX)]
    incarnation: Annotated[int, msgspec.Meta(ge=0, le=NUMBER_MAX)]


class VerbPlan(msgspec.Struct, frozen=True, array_like=True):
    """The tasks on which a verb is to be carried out, as of an instant by the store's clock."""

    made_at: Annotated[Instant, msgspec.Meta(ge=0, le=NUMBER_MAX)]
    tasks: Annotated[tuple[PlannedTask, ...], msgspec.Meta(max_length=PLANNED_MAX)]


class ActedByPlan(msgspec.Struct, frozen=True):
    """The result of a verb on the tasks of a plan.

    Args:
        acted: what this request did.
        done_before: ids of those on which the same person carried out the same verb for the same reason before.
    """

    acted: Acted
    done_before: tuple[str, ...]


async def plan_rows(
    session: Session,
    verb: Verb,
    rows: Sequence[TaskRow],
    by: str,
    reason: str,
    build_fields: FieldsBuilder | None = None,
) -> tuple[Acted, VerbPlan]:
    """Judge a verb on tasks without a change. Returns: the judgement, and the tasks that allow it."""
    made_at = session.store.now()
    acted = await operate_rows(session, verb, iterate_rows(rows), by, reason, dry_run=True, build_fields=build_fields)
    allowed = frozenset(acted.done)
    tasks = tuple(PlannedTask(row.task_no, row.incarnation) for row in rows if row.task_id in allowed)
    return acted, VerbPlan(made_at, tasks)


async def operate_plan(
    session: Session, verb: Verb, plan: VerbPlan, by: str, reason: str, build_fields: FieldsBuilder | None = None
) -> ActedByPlan:
    """Carry out a verb on each task of a plan that still is as it was planned.

    Raises: InvalidInput - nobody signs; StoreError.
    """
    store = session.store
    meant: list[TaskRow] = []
    before: list[str] = []
    refused: list[tuple[str, str]] = []
    for planned in plan.tasks:
        loaded = await store.load(planned.task_no)
        if loaded is None:
            refused.append((f"number {planned.task_no}", "it is no longer there: it was purged"))
        elif await was_done(store, loaded, plan.made_at, verb, by, reason):
            before.append(loaded.task.task_id)
        elif loaded.task.incarnation != planned.incarnation:
            says = f"it is in incarnation {loaded.task.incarnation}, and was planned in {planned.incarnation}"
            refused.append((loaded.task.task_id, says))
        else:
            meant.append(loaded.task)
    acted = await operate_rows(session, verb, iterate_rows(meant), by, reason, build_fields=build_fields)
    merged = Acted(acted.meant + len(refused), acted.done, (*refused, *acted.refused), acted.left_out, acted.changes)
    return ActedByPlan(merged, tuple(before))


async def was_done(store: StateStore, loaded: Loaded, since: Instant, verb: Verb, by: str, reason: str) -> bool:
    """Return True if the operator carried out the verb on the task for that reason since then, as its history says."""
    async for row in store.history(loaded.task.task_no):
        if row.at < since:
            continue
        for event in read_events_to_show(row):
            if isinstance(event, OperatorAction) and (event.verb, event.by, event.reason) == (verb, by, reason):
                return True
    return False


async def iterate_rows(rows: Sequence[TaskRow]) -> AsyncIterator[TaskRow]:
    """Iterate over rows that are loaded already."""
    for row in rows:
        yield row


task_verbs = RouteGroup("task verbs")


class VerbRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A verb on one task. ``reason``: why; kept in the history. ``dry_run``: only judge it, and change nothing.

    Who asks is the token's name; the body cannot say it.
    """

    reason: str
    dry_run: bool = False


class BulkRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A verb on tasks that a filter names, at most ``limit`` of them; or on those of a plan, which a dry run gave.

    Args:
        reason: why; kept in the history of each task.
        filter: the tasks that are meant; at least one thing they have in common.
        plan: ``plan`` of a dry run, instead of a filter. It may be sent again if its answer was lost.
        dry_run: only judge the tasks, and answer with a plan.
        limit: maximum number of tasks of the filter.
        cursor: ``next`` of the request before.
    """

    reason: str
    filter: TaskSelector | None = None
    plan: str | None = None
    dry_run: bool = False
    limit: int = LIMIT_MAX
    cursor: str | None = None


class VerbAnswer(msgspec.Struct, frozen=True):
    """Outcome of a verb. ``task``: its state afterwards.

    ``changes``: in words: each limit and tag that changed, with its old value, and what did not; and approvals. Of a dry run, what
    would change.
    """

    id: str
    verb: str
    outcome: Literal["done", "would_be_done"]
    task: StandingTask
    changes: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET


class RefusedTask(msgspec.Struct, frozen=True):
    """A task that refuses the verb, and why."""

    id: str
    reason: str


class BulkAnswer(msgspec.Struct, frozen=True):
    """Outcome of a verb for one page of the selected tasks.

    Args:
        outcome: ``would_be_done`` of a dry run.
        meant: how many tasks the verb was asked of: those done and those refused.
        done: ids of those it was carried out on; of a dry run, of those that allow it.
        refused: those whose state allows it but that refuse it.
        left_out: how many tasks were left alone, by what they are.
        done_before: ids of tasks of a plan on which it was carried out by an earlier request.
        next: the cursor of the next part; None: this was the last one. A part may be empty before that.
        changes: by id, in words: each limit and tag that changed, with its old value, and what did not; and approvals. Of a dry
            run, what would change.
        would_count: of a dry run, ids of those of ``done`` where the verb would only count as one approval of several.
        plan: of a dry run: what to send to carry it out on exactly these tasks; None: no task allows it.
    """

    verb: str
    outcome: Literal["done", "would_be_done"]
    meant: int
    done: tuple[str, ...]
    refused: tuple[RefusedTask, ...]
    left_out: dict[str, int]
    done_before: tuple[str, ...] = ()
    next: str | None = None
    plan: str | None = None
    changes: dict[str, tuple[str, ...]] | msgspec.UnsetType = msgspec.UNSET
    would_count: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET


def build_body(verb: Verb, base: type[msgspec.Struct], prefix: str) -> Any:
    """Build the type of a verb's body: the base with the verb's arguments; the base itself, if there are none."""
    arguments = VERBS[verb].arguments
    fields = msgspec.structs.fields(arguments)
    if not fields or (VERBS[verb].is_edit and base is BulkRequest):
        return base
    members = [(one.name, one.type) if one.required else (one.name, one.type, _get_default(one)) for one in fields]
    return msgspec.defstruct(
        f"{prefix}{verb.capitalize()}Request",
        members,
        bases=(base,),
        namespace={"__doc__": arguments.__doc__},
        frozen=True,
        kw_only=True,
        forbid_unknown_fields=True,
    )


def _get_default(field: msgspec.structs.FieldInfo) -> Any:
    """Get the default of a field that has one; of a mapping each use makes a new one."""
    return (
        field.default
        if field.default_factory is msgspec.NODEFAULT
        else msgspec.field(default_factory=field.default_factory)
    )


def read_arguments(verb: Verb, asked: VerbRequest | BulkRequest) -> VerbArguments:
    """Read the arguments of a verb from its body. Raises InvalidInput."""
    of = VERBS[verb].arguments
    arguments = of(**{name: getattr(asked, name) for name in of.__struct_fields__ if hasattr(asked, name)})
    arguments.check()
    return arguments


STANDING_EXAMPLE = {
    "id": "order-1001",
    "workflow": "fulfil",
    "state": "processing",
    "failure_count": 0,
    "lost_count": 0,
    "priority": 5,
    "waiting_for": "a Scheduler",
    "reason": "",
    "submitted_at": "2026-11-20T14:15:17.5Z",
    "ended_at": None,
    "incarnation": 2,
    "paused": False,
    "convoy": None,
    "place": None,
    "sequence": None,
}


# --- one task
def _declare_verb(verb: Verb) -> None:
    """Declare the operation of a verb on one task."""
    of = build_body(verb, VerbRequest, "")

    async def run(call: Call, task_id: TaskId) -> VerbAnswer:
        return await _operate_one(call, verb, task_id, call.read(of))

    run.__name__ = f"{verb}_task"
    example = {"reason": "the bank is back", **VERBS[verb].example}
    task_verbs.operation(
        "POST",
        f"/v1/tasks/{{task_id}}:{verb}",
        Needs(Scope.OPERATE),
        is_narrowed=True,
        summary=f"{VERBS[verb].summary.removesuffix('.')}: one task.",
        body=of,
        answer=VerbAnswer,
        problems=(
            TASK_UNKNOWN,
            VERB_REFUSED,
            APPROVAL_NEEDED,
            UNREADABLE,
            *([INVALID_ARGUMENTS] if VERBS[verb].is_edit else []),
        ),
        examples={"do it": example, "try it": {**example, "dry_run": True}},
        answer_example={"id": "order-1001", "verb": str(verb), "outcome": "done", "task": STANDING_EXAMPLE},
    )(run)


async def _operate_one(call: HttpCall, verb: Verb, task_id: str, asked: VerbRequest) -> VerbAnswer:
    session, by = call.session, call.caller.name
    check_signature(by, asked.reason)
    loaded = await load_task_to_act(session, check_id(task_id, "task_id"))
    fields = _choose_fields_builder(session, verb, asked, by)(loaded)
    if asked.dry_run:
        changes = await preview_verb(session, verb, loaded, by, asked.reason, **fields)
        standing = await load_standing_task(loaded, session.store)
        return VerbAnswer(task_id, str(verb), "would_be_done", standing, changes or msgspec.UNSET)
    changes = await operate_task(session, verb, loaded, by, asked.reason, **fields)
    standing = await load_standing_task(await load_task(session, task_id), session.store)
    return VerbAnswer(task_id, str(verb), "done", standing, changes or msgspec.UNSET)


def _choose_fields_builder(session: Session, verb: Verb, asked: VerbRequest | BulkRequest, by: str) -> FieldsBuilder:
    """Choose the function that builds the fields of a verb from the body, for a task as it was just read."""
    arguments = read_arguments(verb, asked)
    return lambda loaded: build_verb_fields(session, loaded, arguments, by=by, reason=asked.reason)


# --- many tasks
def _declare_bulk_verb(verb: Verb) -> None:
    """Declare the operation of a verb on many tasks."""
    of = build_body(verb, BulkRequest, "Bulk")

    async def run(call: Call) -> BulkAnswer:
        return await _operate_many(call, verb, call.read(of))

    run.__name__ = f"{verb}_tasks"
    example = {"filter": {"state": "held", "agent": "bank"}, "reason": "the bank is back", **VERBS[verb].example}
    task_verbs.operation(
        "POST",
        f"/v1/tasks:{verb}",
        Needs(Scope.OPERATE),
        is_narrowed=True,
        summary=f"{VERBS[verb].summary.removesuffix('.')}: the next of the tasks that a filter names, or those of a plan.",
        body=of,
        answer=BulkAnswer,
        problems=(CURSOR_INVALID,),
        examples={"do it": example, "plan it": {**example, "dry_run": True}},
        answer_example={
            "verb": str(verb),
            "outcome": "done",
            "meant": 2,
            "done": ["order-1001"],
            "refused": [{"id": "order-1002", "reason": "step ship is a pivot"}],
            "left_out": {"processed": 98},
            "done_before": [],
            "next": None,
            "plan": None,
        },
    )(run)


async def _operate_many(call: HttpCall, verb: Verb, asked: BulkRequest) -> BulkAnswer:
    session, by = call.session, call.caller.name
    check_signature(by, asked.reason)
    if (asked.filter is None) == (asked.plan is None):
        raise InvalidInput(f"{verb} what? Give a filter, or the plan of a dry run")
    build_fields = _choose_fields_builder(session, verb, asked, by)
    if asked.plan is not None:
        return await _operate_by_plan(session, verb, asked, asked.plan, by, build_fields)
    if not 1 <= asked.limit <= LIMIT_MAX:
        raise InvalidInput(f"limit is {asked.limit}; it must be a whole number from 1 to {LIMIT_MAX}")
    assert asked.filter is not None
    store = session.store
    meant = asked.filter.build_filter(store.now())
    refuse_all_tasks(verb, meant)
    listing = ["verb", asked.filter]
    cursors = await open_cursors(store)
    within = cursors.read_range(asked.cursor, listing)
    narrowed = narrow_filter(meant, call.caller.reach)
    page = await load_page(call.client.session.store, narrowed, within, asked.limit, "oldest")
    after = None if page.rest is None else cursors.write(listing, write_position(page.rest))
    if not asked.dry_run:
        acted = await operate_rows(session, verb, iterate_rows(page.rows), by, asked.reason, build_fields=build_fields)
        return _build_bulk_answer(verb, "done", acted, next=after)
    acted, plan = await plan_rows(session, verb, page.rows, by, asked.reason, build_fields)
    token = cursors.write(["plan", verb], plan) if plan.tasks else None
    return _build_bulk_answer(verb, "would_be_done", acted, next=after, plan=token)


async def _operate_by_plan(
    session: Session, verb: Verb, asked: BulkRequest, token: str, by: str, build_fields: FieldsBuilder
) -> BulkAnswer:
    if asked.cursor is not None or asked.dry_run:
        raise InvalidInput("a plan names its tasks: leave cursor and dry_run out")
    plan: VerbPlan = (await open_cursors(session.store)).read(token, ["plan", verb], VerbPlan)
    done = await operate_plan(session, verb, plan, by, asked.reason, build_fields)
    return _build_bulk_answer(verb, "done", done.acted, done_before=done.done_before)


def _build_bulk_answer(verb: Verb, outcome: Literal["done", "would_be_done"], acted: Acted, **more: Any) -> BulkAnswer:
    refused = tuple(RefusedTask(task_id, reason) for task_id, reason in acted.refused)
    return BulkAnswer(
        str(verb),
        outcome,
        acted.meant,
        acted.done,
        refused,
        dict(acted.left_out),
        changes=acted.changes or msgspec.UNSET,
        would_count=acted.would_count or msgspec.UNSET,
        **more,
    )


for _verb in Verb:
    _declare_verb(_verb)
    _declare_bulk_verb(_verb)


# --- assigning
class AssignAppRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Request to assign tasks that name no App, or another App, to one App.

    Args:
        app: that runs them from now on.
        from_app: whose they are; empty: tasks that do not say so.
        workflow: only tasks of it.
        ids: only these.
        ended: also tasks that have ended well.
    """

    app: str
    reason: str
    from_app: str = ""
    workflow: str | None = None
    ids: tuple[str, ...] = ()
    ended: bool = False
    dry_run: bool = False


class AssignAppAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of an assignment.

    Args:
        workflows: how many tasks of each were given to the App (of a dry run: would be).
        tokens: that do not reach these tasks any longer; left out if there are none, and without the scope admin.
    """

    app: str
    from_app: str
    dry_run: bool
    workflows: dict[str, int]
    refused: tuple[RefusedTask, ...]
    tokens: tuple[TokenLeftBehind, ...] = ()


@task_verbs.operation(
    "POST",
    "/v1/tasks:assign-app",
    Needs(Scope.OPERATE),
    summary="Say which App runs tasks. The same request again continues with what is left.",
    body=AssignAppRequest,
    problems=(TASK_UNKNOWN, UNKNOWN_NAME),
    examples={"rename": {"app": "shop", "from_app": "old-shop", "reason": "it was renamed", "dry_run": True}},
    answer_example={
        "app": "shop",
        "from_app": "old-shop",
        "dry_run": True,
        "workflows": {"fulfil": 7},
        "refused": [],
        "tokens": [
            {
                "id": "0123456789abcdef",
                "name": "partner",
                "apps": ["old-shop"],
                "remedy": "arriero token create --scope read --app-name shop partner; give it to its holder, then: arriero token revoke"
                " 0123456789abcdef --reason TEXT",
            }
        ],
    },
)
async def assign_app(call: Call) -> AssignAppAnswer:
    wanted = call.read(AssignAppRequest)
    asked = Assignment(
        app=wanted.app,
        from_app=wanted.from_app,
        workflow=wanted.workflow,
        task_ids=wanted.ids,
        ended=wanted.ended,
    )
    found = await assign(call.session, asked, by=call.caller.name, reason=wanted.reason, dry_run=wanted.dry_run)
    refused = tuple(RefusedTask(task_id, reason) for task_id, reason in found.refused)
    tokens = found.tokens if may_list_tokens(call.caller.scopes) else ()
    return AssignAppAnswer(asked.app, asked.from_app, wanted.dry_run, found.workflows, refused, tokens)
