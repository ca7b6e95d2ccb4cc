"""Pages: operations of the server that answer with a template, and that no document of the API lists."""

import functools
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.responses import Response

from ..calls import HttpCall
from ..routing import RouteGroup
from ..scopes import Needs
from .frame import Page, render

__all__ = ["FORM", "Page", "console", "page"]

console = RouteGroup("console")
FORM = "application/x-www-form-urlencoded"

PageFunction = Callable[..., Awaitable["Page | Response"]]


def page(path: str, needs: Needs, summary: str, *, method: str = "GET") -> Callable[[PageFunction], PageFunction]:
    """Declare a page: decorates a function like an operation's, which returns a ``Page`` or a Response.

    Each operation of the API that the page asks refuses by itself whom it does not know, also restricted tokens.

    Args:
        path: from the root of the console, like ``/tasks``.
        needs: of the page itself.
        summary: one line.
        method: of HTTP. POST takes a form.
    """

    def declare(function: PageFunction) -> PageFunction:
        @functools.wraps(function)
        async def answer(call: HttpCall, *args: Any, **kwargs: Any) -> Response:
            found = await function(call, *args, **kwargs)
            return found if isinstance(found, Response) else await render(call, found)

        form = {"body": bytes, "body_media": FORM} if method == "POST" else {}
        described = {"summary": summary, "is_page": True, "is_narrowed": True, "answer_media": "text/html", **form}
        console.operation(method, path, needs, **described)(answer)
        return function

    return declare
