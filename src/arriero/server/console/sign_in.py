"""Signing in with a token, and out again. The token is the content of a cookie that no script of a page reads."""

from typing import Annotated

from fastapi import Query
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from ..authentication import COOKIE
from ..calls import Call
from ..problems import Problem
from ..routing import Gate
from ..scopes import Needs
from .cookies import check_back, get_cookie_path, set_cookie
from .page import Page, page, read_form

NEXT_LENGTH_MAX = 2_000
SIGNED_OUT = Needs(public="the one who signs in is not known yet, and the page holds no data")
EXPIRED = "The token of this browser is no longer valid. Sign in with another one."


@page("/sign-in", SIGNED_OUT, "The form to sign in with a token.")
async def show_sign_in(
    call: Call,
    next: Annotated[str, Query(max_length=NEXT_LENGTH_MAX)] = "",
    expired: bool = False,
) -> Page:
    return Page("sign_in.html", "Sign in", {"next": check_back(next, call.root), "refused": EXPIRED * expired})


@page("/sign-in", SIGNED_OUT, "Sign in with a token.", method="POST")
async def sign_in(call: Call) -> Page | Response:
    form = await read_form(call)
    token, back = form.get("token", [""])[0].strip(), check_back(form.get("next", [""])[0], call.root)
    try:
        await _admit(call.request, token)
    except Problem as problem:
        context = {"next": back, "refused": f"You are not signed in: {problem.detail}."}
        return Page("sign_in.html", "Sign in", context, status=problem.kind.status)
    answer = RedirectResponse(back, 303)
    set_cookie(call.request, answer, COOKIE, token)
    return answer


async def _admit(request: Request, token: str) -> None:
    """Admit a token as the gate does. Raises Problem - it is not valid."""
    others = [one for one in request.scope["headers"] if one[0] not in (b"authorization", b"cookie")]
    bearer = (b"authorization", f"Bearer {token}".encode("latin-1", "replace"))
    gate: Gate = request.app.gate
    await gate.authenticate(Request({**request.scope, "headers": [*others, bearer]}))


@page("/sign-out", SIGNED_OUT, "Forget the token of this browser.", method="POST")
async def sign_out(call: Call) -> Response:
    answer = RedirectResponse(f"{call.root}/sign-in", 303)
    answer.delete_cookie(COOKIE, path=get_cookie_path(call.request))
    return answer
