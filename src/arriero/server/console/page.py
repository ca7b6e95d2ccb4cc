"""Pages: operations of the server that answer with a template, and that no document of the API lists."""

import functools
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import parse_qs

from starlette.responses import Response

from ...operations.problems import INVALID_REQUEST
from ..calls import HttpCall
from ..problems import Problem
from ..request_body import run_on_text
from ..routing import RouteGroup
from ..scopes import Needs
from .frame import Page, render

__all__ = ["Page", "console", "page", "read_form"]

console = RouteGroup("console")
FORM = "application/x-www-form-urlencoded"
FIELDS_MAX = 10_000  # of a form
PUBLIC_BYTES_MAX = 16_384  # of a form that needs no token

PageFunction = Callable[..., Awaitable["Page | Response"]]


def page(
    path: str, needs: Needs, summary: str, *, method: str = "GET", is_live: bool = False
) -> Callable[[PageFunction], PageFunction]:
    """Declare a page: decorates a function like an operation's, which returns a ``Page`` or a Response.

    Each operation of the API that the page asks refuses by itself whom it does not know, also restricted tokens.

    Args:
        path: from the root of the console, like ``/tasks``.
        needs: of the page itself.
        summary: one line.
        method: of HTTP. POST takes a form.
        is_live: it is brought up to date when anything in the store changes.
    """

    def declare(function: PageFunction) -> PageFunction:
        @functools.wraps(function)
        async def answer(call: HttpCall, *args: Any, **kwargs: Any) -> Response:
            # Read before the page is: what changes meanwhile is then seen as a change.
            end = await call.client.session.store.find_history_end() if is_live else 0
            found = await function(call, *args, **kwargs)
            if is_live and isinstance(found, Page):
                found = Page(found.template, found.title, found.context, f"/live?seen={end}", found.status)
            return found if isinstance(found, Response) else await render(call, found)

        form: dict[str, Any] = {"body": bytes, "body_media": FORM} if method == "POST" else {}
        if form and needs.public:
            form["body_max"] = PUBLIC_BYTES_MAX
        described = {"summary": summary, "is_page": True, "is_narrowed": True, "answer_media": "text/html", **form}
        console.operation(method, path, needs, **described)(answer)
        return function

    return declare


async def read_form(call: HttpCall) -> dict[str, list[str]]:
    """Read the fields of a form, the empty ones, too; a large form is read in a thread.

    Raises: Problem - it has more than 10,000 fields.
    """
    parse = functools.partial(
        parse_qs, call.body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=FIELDS_MAX
    )
    try:
        return await run_on_text(call.client.session.ports, call.place.thread_turn, len(call.body), parse)
    except ValueError:
        raise Problem(INVALID_REQUEST, f"the form has more than {FIELDS_MAX:,} fields") from None
