"""Acts: a form for an operation of the API, and what carries it out as its caller.

A form carries the key of its caller, so no page of others can send it; a number of its own, so that a double click or a reload acts
once; and the version of the task that was looked at, so that two operators do not act on one another's outcome unseen.
"""

import asyncio
import functools
import hmac
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Annotated, Any, NamedTuple

import msgspec
from fastapi import Path, Query
from pydantic import AfterValidator
from starlette.responses import RedirectResponse, Response

from ...client.schedules import AskedRun
from ...errors import ArrieroError
from ...operations.problems import INVALID_REQUEST, find_meaning
from ...text.format import format_count
from ..calls import Call, HttpCall
from ..parameters import read_id
from ..problems import CROSS_ORIGIN, NOT_FOUND, Problem, build_problem
from ..routing import Operation
from ..scopes import ANY_TOKEN
from .asking import ask, list_operations
from .cookies import check_back, keep_outcome
from .forms import Field, list_fields, read_fields
from .frame import build_form_key, render
from .page import Page, page, read_form

REMEMBERED_MAX = 10_000  # forms that were sent to this process, so that each acts once
SECRET_SECONDS = 30.0  # for a second click on the same form; a reload after it shows no secret
WITH_LENGTH_MAX = 4_000
SECRET_PAGES = {"create_token": "new_token.html"}  # of operations whose answer is nowhere else
WARNINGS = {  # of acts that undo what others rely on
    "revoke_token": "The one who holds it is refused within a second. If you are signed in with it, so are you.",
    "break_lease": "Its holder may still be at work, and does not learn of this before it renews. Break a lease only if its holder"
    " hangs. What it guards must refuse an older term.",
}
RUNS_SHOWN = 20  # of a schedule, in the outcome of an act
RUN_OUTCOMES = {
    "planned": "Would submit",
    "submitted": "Submitted",
    "there": "Was there already:",
    "refused": "Could not submit",
}

Subject = Annotated[str, Path(description="What the act is on, percent-encoded."), AfterValidator(read_id)]
With = Annotated[str, Query(alias="with", max_length=WITH_LENGTH_MAX)]
Back = Annotated[str, Query(max_length=WITH_LENGTH_MAX)]


class Act(NamedTuple):
    """An operation of the API on one thing, as a form shows it.

    Args:
        operation: of the API.
        parameters: of its path.
        subject: what it is on; empty: on nothing that there is.
    """

    operation: Operation
    parameters: dict[str, str]
    subject: str

    @property
    def fields(self) -> tuple[Field, ...]:
        """The fields of its form, empty."""
        return list_fields(self.operation.body)

    @property
    def verb(self) -> str:
        """Its word for a button: what stands after the colon of its path, or begins the name of its function."""
        _, colon, word = self.operation.path.rpartition(":")
        word = word if colon else self.operation.function.__name__.partition("_")[0]
        return word.replace("-", " ").capitalize()

    @property
    def meaning(self) -> str:
        """A sentence that says what it does."""
        return self.operation.summary.removesuffix(": one task.").rstrip(".") + "."

    @property
    def has_preview(self) -> bool:
        """Returns True if the operation can say what it would do."""
        return "dry_run" in self.operation.body.__struct_fields__


def find_act(name: str, subject: str = "") -> Act:
    """Find an act by the name of its operation. Raises Problem (not-found) - there is none that a form could send."""
    operation = list_operations().get(name)
    if operation is None or operation.method == "GET" or not isinstance(operation.body, type) or operation.streams_body:
        raise Problem(NOT_FOUND, f"there is no act {name!r}")
    names = [part[1:].partition("}")[0] for part in operation.path.split("/") if part.startswith("{")]
    if len(names) != (1 if subject else 0):
        raise Problem(NOT_FOUND, f"the act {name} names {'one thing' if names else 'nothing'} that it is on")
    return Act(operation, dict.fromkeys(names, subject), subject)


class SentForms:
    """Forms that this process has carried out, or is carrying out, with the outcome of each."""

    def __init__(self) -> None:
        self._sent: OrderedDict[tuple[str, str], asyncio.Future[Response]] = OrderedDict()

    def find(self, caller: str, once: str) -> asyncio.Future[Response] | None:
        """Find what a form has come to, or comes to; None: it was not sent here."""
        return self._sent.get((caller, once))

    def begin(self, caller: str, once: str) -> asyncio.Future[Response]:
        """Note that a form is carried out now. The one who does so sets the result."""
        outcome: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self._sent[caller, once] = outcome
        while len(self._sent) > REMEMBERED_MAX:
            self._sent.popitem(last=False)
        return outcome

    def replace_outcome(self, caller: str, once: str, by: Response) -> None:
        """Answer a form that has been carried out with another response from now on."""
        outcome: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        outcome.set_result(by)
        if (caller, once) in self._sent:
            self._sent[caller, once] = outcome

    def forget(self, caller: str, once: str) -> None:
        """Forget a form that has done nothing: it may be sent again."""
        self._sent.pop((caller, once), None)

    async def run_once(
        self, call: HttpCall, once: str, work: Callable[[], Awaitable[Page | Response]]
    ) -> Page | Response:
        """Carry out a form, unless it was sent before: then its outcome is returned again.

        Args:
            once: the form's own number.
            work: what carries it out. It returns a page if nothing was done.
        """
        who = call.caller.credential or call.caller.name
        while (running := self.find(who, once)) is not None:
            await asyncio.wait({running})
            if not running.cancelled():
                return running.result()
        outcome = self.begin(who, once)
        try:
            answer = await work()
        except BaseException:
            self.forget(who, once)
            outcome.cancel()
            raise
        if isinstance(answer, Page):
            self.forget(who, once)
            outcome.cancel()
            return answer
        outcome.set_result(answer)
        return answer


@page("/act/{operation}/{subject}", ANY_TOKEN, "The form of an act on one thing.")
async def show_form(call: Call, operation: str, subject: Subject, values: With = "", back: Back = "") -> Page:
    return await _show_form(call, find_act(operation, subject), values, back)


@page("/act/{operation}", ANY_TOKEN, "The form of an act.")
async def show_form_of_none(call: Call, operation: str, values: With = "", back: Back = "") -> Page:
    return await _show_form(call, find_act(operation), values, back)


@page("/act/{operation}/{subject}", ANY_TOKEN, "Carry out an act on one thing.", method="POST")
async def act_on(call: Call, operation: str, subject: Subject) -> Page | Response:
    return await _act(call, find_act(operation, subject))


@page("/act/{operation}", ANY_TOKEN, "Carry out an act.", method="POST")
async def act(call: Call, operation: str) -> Page | Response:
    return await _act(call, find_act(operation))


async def _show_form(call: HttpCall, act: Act, values: str, back: str) -> Page:
    try:
        given = msgspec.json.decode(values, type=dict[str, Any]) if values else {}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Problem(
            INVALID_REQUEST, f"the values of the form in the address are not a JSON object: {error}"
        ) from error
    shown = {
        name: value if isinstance(value, str) else msgspec.json.encode(value).decode() for name, value in given.items()
    }
    state = await read_version(call, act.parameters.get("task_id", ""))
    return await build_form_page(call, act, shown, check_back(back, call.root), seen=state)


async def build_form_page(
    call: HttpCall,
    act: Act,
    values: Mapping[str, str],
    back: str,
    *,
    seen: str = "",
    refused: str = "",
    preview: Sequence[str] = (),
    status: int = 200,
) -> Page:
    """Build the page of a form.

    Args:
        values: what its fields show.
        seen: the version of the task that it is on.
        refused: why it was refused.
        preview: what it would do.
    """
    context = {
        "act": act,
        "fields": list_fields(act.operation.body, values),
        "back": back,
        "seen": seen,
        "once": secrets.token_urlsafe(12),
        "refused": refused,
        "preview": preview,
        "warning": WARNINGS.get(act.operation.function.__name__, ""),
    }
    return Page("act.html", f"{act.verb} {act.subject}".rstrip(), context, status=status)


async def read_version(call: HttpCall, task_id: str) -> str:
    """Read the version of the task that an act is on; empty: it is on none. Raises UnknownTask."""
    if not task_id:
        return ""
    task = await ask(call, "show_task", task_id=task_id)
    return (await call.session.store.load_versions([task.no])).get(task.no, "")


async def describe_change(call: HttpCall, task_id: str) -> str:
    """Describe to the second of two operators how the task stands now. Raises UnknownTask."""
    task = await ask(call, "show_task", task_id=task_id)
    return f"The task has changed since this form was opened: it is {task.state} now. Look at it, then decide again."


async def _act(call: HttpCall, act: Act) -> Page | Response:
    sent, one = await receive_form(call)
    back = check_back(one.get("back", ""), call.root)
    if "preview" in one:
        return await _try(call, act, sent, back, one.get("seen", ""), dry_run=True)
    carry_out = functools.partial(_try, call, act, sent, back, one.get("seen", ""))
    forms, once = get_sent_forms(call), one.get("once", "")
    answer = await forms.run_once(call, once, carry_out)
    if act.operation.function.__name__ in SECRET_PAGES and isinstance(answer, Response):
        later = RedirectResponse(back, 303)
        keep_outcome(call.request, later, "This form was carried out before, and its secret was shown then.")
        who = call.caller.credential or call.caller.name
        replace = functools.partial(forms.replace_outcome, who, once, later)
        asyncio.get_running_loop().call_later(SECRET_SECONDS, replace)
    return answer


async def receive_form(call: HttpCall) -> tuple[dict[str, list[str]], dict[str, str]]:
    """Receive a form of a page that its caller has seen.

    Returns: its fields, and the first value of each.
    Raises: Problem - it is of no page of this caller, or has too many fields.
    """
    sent = await read_form(call)
    one = {name: values[0] for name, values in sent.items()}
    if not hmac.compare_digest(one.get("key", "").encode(), (await build_form_key(call)).encode()):
        raise Problem(CROSS_ORIGIN, "the form is not of this page, or is from before a new epoch: open it again")
    return sent, one


def get_sent_forms(call: HttpCall) -> SentForms:
    """Get the forms that this process has carried out."""
    state = call.request.app.state
    if not hasattr(state, "sent_forms"):
        state.sent_forms = SentForms()
    forms: SentForms = state.sent_forms
    return forms


async def _try(
    call: HttpCall,
    act: Act,
    sent: Mapping[str, Sequence[str]],
    back: str,
    seen: str,
    *,
    dry_run: bool = False,
) -> Page | Response:
    """Carry out an act, or only judge it. Returns: a page if nothing was done, with the reason."""
    values = {field.name: next(iter(sent.get(field.input_name, ())), "") for field in act.fields}
    now = await read_version(call, act.parameters.get("task_id", ""))
    if seen and seen != now:
        says = await describe_change(call, act.subject)
        return await build_form_page(call, act, values, back, seen=now, refused=says, status=409)
    try:
        members = read_fields(act.fields, sent)
        answer = await ask_with_body(call, act, {**members, "dry_run": True} if dry_run else members)
    except (Problem, ArrieroError) as error:
        if isinstance(error, ArrieroError) and find_meaning(type(error)).problem.status >= 500:
            raise
        return await _refuse(call, act, values, back, now, error)
    lines = describe_outcome(act, answer)
    if dry_run:
        return await build_form_page(call, act, values, back, seen=now, preview=lines)
    if secret := SECRET_PAGES.get(act.operation.function.__name__):
        return await render(
            call, Page(secret, act.operation.summary.rstrip("."), {"answer": answer, "back": back}, status=201)
        )
    response = RedirectResponse(back, 303)
    keep_outcome(call.request, response, " ".join(lines))
    return response


async def _refuse(
    call: HttpCall, act: Act, values: Mapping[str, str], back: str, seen: str, error: Problem | ArrieroError
) -> Page:
    problem = error if isinstance(error, Problem) else build_problem(error, call.session)
    assert problem is not None  # bugs were raised
    return await build_form_page(call, act, values, back, seen=seen, refused=problem.detail, status=problem.kind.status)


async def ask_with_body(call: HttpCall, act: Act, members: Mapping[str, Any]) -> Any:
    """Ask the operation of an act with a body, as if its caller had sent that as JSON."""
    asked = HttpCall(
        call.client, call.caller, msgspec.json.encode(members), call.request, call.shutdown, call.confirm, call.place
    )
    return await ask(asked, act.operation.function.__name__, **act.parameters)


def describe_outcome(act: Act, answer: Any) -> tuple[str, ...]:
    """Describe in sentences what an act has done, or would do."""
    runs: Sequence[AskedRun] = getattr(answer, "runs", ())
    done = getattr(answer, "outcome", "would_be_done" if any(one.outcome == "planned" for one in runs) else "done")
    first = f"{'Would be done' if done == 'would_be_done' else 'Done'}: {f'{act.verb} {act.subject}'.rstrip()}."
    task = getattr(answer, "task", None)
    changes = getattr(answer, "changes", None)
    lines = [first]
    if task is not None and done != "would_be_done":
        lines.append(f"It is {task.state} now.")
    if isinstance(changes, tuple):
        lines += [f"{one}." for one in changes]
    lines += [
        f"{RUN_OUTCOMES[one.outcome]} {one.task_id}{one.detail and ': '}{one.detail}." for one in runs[:RUNS_SHOWN]
    ]
    if len(runs) > RUNS_SHOWN:
        lines.append(f"And {format_count(len(runs) - RUNS_SHOWN, 'more run')}.")
    return tuple(lines)
