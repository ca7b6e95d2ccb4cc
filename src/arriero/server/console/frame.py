"""Renders a page in the frame that all pages share: navigation, who looks at it, what the last act has come to."""

from typing import Any, NamedTuple
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from ..authentication import COOKIE
from ..calls import HttpCall
from ..cursors import open_cursors
from ..problems import FORBIDDEN, NOT_FOUND, OUT_OF_REACH, UNAUTHENTICATED, Problem
from ..request_rules import SAFE_METHODS
from .asking import may_ask
from .assets import compute_edition
from .cookies import OUTCOME, get_cookie_path, get_here, get_root, read_outcome
from .rendering import get_environment

# Nothing of another origin is loaded or asked, and no page runs a program that stands in it: what a task is called, or holds, is text.
SECURITY = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
    " form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "same-origin",
}
BY_SCRIPT = "HX-Request"  # a header of htmx, which takes the changed parts out of the answer


class Page(NamedTuple):
    """A page to be rendered.

    Args:
        template: its file.
        title: of the page, in plain text.
        context: values that the template shows, beside those of the frame.
        live: the path of the stream of events that says when the page is behind; empty: it does not change by itself.
        status: of the answer.
    """

    template: str
    title: str
    context: dict[str, Any]
    live: str = ""
    status: int = 200


class Place(NamedTuple):
    """An entry of the navigation. ``operation``: of the API, without which the page shows nothing."""

    path: str
    title: str
    operation: str


PLACES = (
    Place("/", "Overview", "list_tasks"),
    Place("/tasks", "Tasks", "list_tasks"),
    Place("/failures", "Failures", "list_alert_causes"),
    Place("/inbox", "Inbox", "list_questions"),
    Place("/alerts", "Alerts", "list_alerts"),
    Place("/convoys", "Convoys", "list_convoys"),
    Place("/ledgers", "Ledgers", "list_ledgers"),
    Place("/agents", "Agents", "list_agents"),
    Place("/schedules", "Schedules", "list_schedules"),
    Place("/workflows", "Workflows", "list_workflows"),
    Place("/processes", "Processes", "list_processes"),
    Place("/versions", "Versions", "list_code_versions"),
    Place("/leases", "Leases", "list_leases"),
    Place("/tokens", "Tokens", "list_tokens"),
    Place("/audit", "Audit", "list_operator_acts"),
)
REMEDIES = {NOT_FOUND: "The console has no such page; begin at the overview."}  # where that for programs does not help
NOBODY: dict[str, Any] = {"caller": "", "places": (), "form_key": "", "outcome": "", "app": ""}


async def render(call: HttpCall, shown: Page) -> Response:
    """Render a page for its caller."""
    request, frame = call.request, NOBODY
    if call.caller.name:
        frame = {
            "caller": call.caller.name,
            "places": [place for place in PLACES if may_ask(call, place.operation)],
            "form_key": await build_form_key(call),
            "outcome": read_outcome(request),
            "app": call.client.session.app,
        }
    answer = _build_response(request, shown, frame)
    if frame["outcome"] and BY_SCRIPT not in request.headers:
        answer.delete_cookie(OUTCOME, path=get_cookie_path(request))
    return answer


async def build_form_key(call: HttpCall) -> str:
    """Build what each form of a caller carries, and no page of others can know."""
    cursors = await open_cursors(call.client.session.store)
    return cursors.write(["console form", call.caller.credential or call.caller.name], 0)


def _build_response(request: Request, shown: Page, frame: dict[str, Any]) -> Response:
    root = get_root(request)
    values = {
        "root": root,
        "edition": compute_edition(),
        "path": request.url.path.removeprefix(root),
        "here": get_here(request),
        "title": shown.title,
        "live": shown.live and root + shown.live,
    }
    text = get_environment().get_template(shown.template).render({**values, **frame, **shown.context})
    return HTMLResponse(text, shown.status, headers=SECURITY)


def render_problem(request: Request, problem: Problem) -> Response:
    """Answer a page that is refused: the one who is not known signs in first, others learn why and what to do."""
    root = get_root(request)
    if problem.kind is UNAUTHENTICATED and BY_SCRIPT not in request.headers:
        again = get_here(request) if request.method in SAFE_METHODS else f"{root}/"
        was_known = COOKIE in request.cookies
        return RedirectResponse(f"{root}/sign-in?next={quote(again, safe='')}{'&expired=true' * was_known}", 303)
    may_sign_in = problem.kind in (FORBIDDEN, OUT_OF_REACH)
    shown = Page(
        "problem.html",
        problem.kind.title,
        {"problem": problem, "may_sign_in": may_sign_in, "remedy": REMEDIES.get(problem.kind, problem.kind.remedy)},
        status=problem.kind.status,
    )
    answer = _build_response(request, shown, NOBODY)
    for name, value in problem.headers.items():
        answer.headers[name] = value
    return answer
