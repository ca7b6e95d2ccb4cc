"""One verb for all tasks of a filter: a form, a preview of what it would do, and the verb itself, part by part.

The preview gives a plan: exactly the tasks that were looked at, as they were. What is carried out is that plan, so a task that
comes to fit the filter meanwhile is left alone, and the same form again does nothing twice.
"""

import secrets
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Any
from urllib.parse import urlencode

import msgspec
from fastapi import Path, Query
from msgspec.structs import replace
from starlette.responses import Response

from ...client.tasks import TaskSelector
from ...errors import ArrieroError, InvalidInput
from ...model import Verb
from ...model.verb_rules import VERB_RULES, VERBS
from ...operations.problems import find_meaning
from ...text.format import format_count
from ..calls import Call, HttpCall
from ..parameters import LIMIT_MAX
from ..problems import NOT_FOUND, Problem, build_problem
from ..routes.task_verbs import BulkAnswer
from ..scopes import Needs, Scope
from .acting import Act, ask_with_body, find_act, get_sent_forms, receive_form
from .cookies import check_back
from .forms import PREFIX, list_fields, read_fields
from .frame import render
from .page import Page, page
from .task_filters import Filter, TypedFilter, parse_filter

TASKS_MAX = 2_000  # that one click looks at, or acts on
PREVIEW_SECONDS = 5.0  # after which a preview ends with the part that it has
ACT_SECONDS = 10.0  # after which the outcome so far is shown, with a button to continue
SHOWN_MAX = 20  # ids, reasons and changes of each kind on a page
REASON_LENGTH_MAX = 300
REFERENCE_LENGTH_MAX = 4_000

VerbName = Annotated[str, Path(description="The verb.", max_length=40)]
Back = Annotated[str, Query(max_length=REFERENCE_LENGTH_MAX)]


class BulkForm(msgspec.Struct, frozen=True):
    """The content of the form of a verb on many tasks.

    Args:
        typed: the filter.
        values: what its fields show, by name.
        plans: the tasks that a preview has found, in parts, each with the count of its tasks: ``12.PLAN``.
        cursor: where the part of the filter begins that was not looked at; empty: there is none, or all of it.
        done: how many tasks were done by the forms before this one.
        back: the page to return to.
    """

    verb: Verb
    act: Act
    typed: TypedFilter
    values: Mapping[str, str]
    plans: tuple[str, ...] = ()
    cursor: str = ""
    done: int = 0
    back: str = ""

    @property
    def planned(self) -> int:
        """The number of tasks that the plans name."""
        return sum(int(count) for count, _ in map(_split_plan, self.plans))

    @property
    def query(self) -> str:
        """The filter as the query of an address."""
        return urlencode([(name, value) for name, value in self.typed.given.items()], doseq=True)

    @property
    def states(self) -> str:
        """The states of tasks that allow the verb."""
        return ", ".join(state for of, state in VERB_RULES if of is self.verb)


class BulkOutcome(msgspec.Struct, frozen=True):
    """The outcome of a verb on the tasks that were looked at, or the one that it would have.

    Args:
        left_out: how many tasks were left alone, by what they are.
        plans: those that are left of a form, or that a preview has made.
        cursor: where the part begins that was not looked at; empty: there is none.
    """

    done: tuple[str, ...] = ()
    refused: tuple[tuple[str, str], ...] = ()
    left_out: Mapping[str, int] = {}
    done_before: tuple[str, ...] = ()
    would_count: tuple[str, ...] = ()
    changes: Mapping[str, tuple[str, ...]] = {}
    plans: tuple[str, ...] = ()
    cursor: str = ""

    @property
    def looked_at(self) -> int:
        """The number of tasks that were looked at."""
        return len(self.done) + len(self.refused) + len(self.done_before) + sum(self.left_out.values())

    @property
    def left_out_words(self) -> str:
        """The tasks that were left alone, in words."""
        return ", ".join(f"{count:,} {state}" for state, count in self.left_out.items())

    def add(self, answer: BulkAnswer) -> "BulkOutcome":
        """Add the answer for one part of the tasks."""
        changes = {} if isinstance(answer.changes, msgspec.UnsetType) else answer.changes
        counting = () if isinstance(answer.would_count, msgspec.UnsetType) else answer.would_count
        return replace(
            self,
            done=(*self.done, *answer.done),
            refused=(*self.refused, *((one.id, one.reason) for one in answer.refused)),
            left_out=dict(Counter(self.left_out) + Counter(answer.left_out)),
            done_before=(*self.done_before, *answer.done_before),
            would_count=(*self.would_count, *counting),
            changes={**self.changes, **changes},
        )


def _split_plan(plan: str) -> tuple[str, str]:
    count, _, token = plan.partition(".")
    if not count.isdigit() or len(count) > len(str(LIMIT_MAX)):
        raise InvalidInput("the plan of the form cannot be read; look at the tasks again")
    return count, token


def _find_bulk_act(verb: str) -> tuple[Verb, Act]:
    if verb not in tuple(Verb):
        raise Problem(NOT_FOUND, f"there is no verb {verb!r}; verbs are {', '.join(Verb)}")
    return Verb(verb), find_act(f"{verb}_tasks")


@page("/bulk/{verb}", Needs(Scope.OPERATE), "The form of a verb on all tasks that a filter names.")
async def show_bulk_form(call: Call, verb: VerbName, typed: Filter, back: Back = "") -> Page:
    which, act = _find_bulk_act(verb)
    to = check_back(back, call.root) if back else f"{call.root}/tasks?{urlencode(typed.given, doseq=True)}"
    form = BulkForm(which, act, typed, {}, back=to)
    try:
        _read_filter(form)
    except InvalidInput as error:
        return _build_page(form, "form", refused=f"{error}.", status=422)
    return _build_page(form, "form")


@page("/bulk/{verb}", Needs(Scope.OPERATE), "Carry out a verb on all tasks that a filter names.", method="POST")
async def act_on_many(call: Call, verb: VerbName) -> Page | Response:
    which, act = _find_bulk_act(verb)
    sent, one = await receive_form(call)
    form = BulkForm(
        which,
        act,
        parse_filter(one.get("filter", "")),
        {field.name: one.get(field.input_name, "") for field in act.fields},
        tuple(sent.get("plan", ())),
        one.get("cursor", ""),
        int(one["done"]) if one.get("done", "").isdigit() and len(one["done"]) < 10 else 0,
        check_back(one.get("back", ""), call.root),
    )
    if "edit" in one:
        return _build_page(replace(form, plans=()), "form")
    if "preview" in one:
        return await _run(call, form, sent, is_preview=True)
    return await get_sent_forms(call).run_once(call, one.get("once", ""), lambda: _run(call, form, sent))


async def _run(
    call: HttpCall, form: BulkForm, sent: Mapping[str, Sequence[str]], *, is_preview: bool = False
) -> Page | Response:
    """Look at the tasks, or act on them. Returns: a page if nothing was done."""
    try:
        members = read_fields(form.act.fields, sent)
        which = _read_filter(form)
        if is_preview:
            return _build_page(form, "preview", outcome=await _preview(call, form, which, members))
        outcome = await _carry_out(call, form, which, members)
    except (Problem, ArrieroError) as error:
        if isinstance(error, ArrieroError) and find_meaning(type(error)).problem.status >= 500:
            raise
        problem = error if isinstance(error, Problem) else build_problem(error, call.session)
        assert problem is not None  # bugs were raised
        refused = f"{problem.detail}."
        return _build_page(replace(form, plans=()), "form", refused=refused, status=problem.kind.status)
    left = replace(form, plans=outcome.plans, cursor=outcome.cursor, done=form.done + len(outcome.done))
    return await render(call, _build_page(left, "outcome", outcome=outcome))


def _read_filter(form: BulkForm) -> TaskSelector:
    """Read the filter. Raises InvalidInput - it cannot be read, or names everything there is."""
    if not form.typed.given:
        raise InvalidInput(f"{form.verb} of all tasks there are: filter them first, by at least one thing they share")
    return form.typed.read()


async def _preview(call: HttpCall, form: BulkForm, which: TaskSelector, members: Mapping[str, Any]) -> BulkOutcome:
    """Judge the verb on the first tasks of the filter, or on those after the cursor."""
    monotonic = call.session.ports.clock.monotonic
    until = monotonic() + PREVIEW_SECONDS
    outcome, cursor, parts = BulkOutcome(), form.cursor, 0
    while True:
        asked = {**members, "filter": which, "dry_run": True, "limit": LIMIT_MAX, "cursor": cursor or None}
        answer: BulkAnswer = await ask_with_body(call, form.act, asked)
        outcome, cursor, parts = outcome.add(answer), answer.next or "", parts + 1
        if answer.plan is not None:
            outcome = replace(outcome, plans=(*outcome.plans, f"{len(answer.done)}.{answer.plan}"))
        if not cursor or parts >= TASKS_MAX // LIMIT_MAX or monotonic() >= until:
            return replace(outcome, cursor=cursor)


async def _carry_out(call: HttpCall, form: BulkForm, which: TaskSelector, members: Mapping[str, Any]) -> BulkOutcome:
    """Carry out the plans of a form; of one without a plan, the verb on the tasks after its cursor."""
    monotonic = call.session.ports.clock.monotonic
    until = monotonic() + ACT_SECONDS
    outcome, cursor = BulkOutcome(), form.cursor
    if form.plans:
        plans = list(form.plans)
        for _, token in map(_split_plan, form.plans):
            outcome = outcome.add(await ask_with_body(call, form.act, {**members, "plan": token}))
            plans.pop(0)
            if monotonic() >= until:
                break
        return replace(outcome, plans=tuple(plans), cursor=cursor)
    if not cursor:
        raise InvalidInput("look at the tasks before you act on all of them: press Preview")
    for _ in range(TASKS_MAX // LIMIT_MAX):
        asked = {**members, "filter": which, "limit": LIMIT_MAX, "cursor": cursor}
        answer: BulkAnswer = await ask_with_body(call, form.act, asked)
        outcome, cursor = outcome.add(answer), answer.next or ""
        if not cursor or monotonic() >= until:
            break
    return replace(outcome, cursor=cursor)


def _build_page(
    form: BulkForm, stage: str, *, outcome: BulkOutcome | None = None, refused: str = "", status: int = 200
) -> Page:
    """Build the page of a stage: ``form``, ``preview``, or ``outcome``."""
    shown = form if outcome is None else replace(form, plans=outcome.plans, cursor=outcome.cursor)
    context = {
        "form": shown,
        "fields": list_fields(form.act.operation.body, form.values),
        "prefix": PREFIX,
        "stage": stage,
        "found": outcome,
        "says": VERBS[form.verb].summary,
        "refused": refused,
        "once": secrets.token_urlsafe(12),
        "most": SHOWN_MAX,
        "many": lambda count: format_count(count, "task"),
        "shorten": lambda text: text if len(text) <= REASON_LENGTH_MAX else text[:REASON_LENGTH_MAX] + " …",
    }
    return Page("bulk.html", f"{form.verb.capitalize()} all tasks of a filter", context, status=status)
