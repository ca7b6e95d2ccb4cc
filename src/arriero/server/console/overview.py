"""The first page: what needs an operator, and how the store and its processes stand."""

from ..calls import Call
from ..scopes import ANY_TOKEN
from .asking import ask, may_ask
from .page import Page, page


@page("/", ANY_TOKEN, "What needs an operator, and how work stands.", is_live=True)
async def show_overview(call: Call) -> Page:
    diagnosis = await ask(call, "diagnose") if may_ask(call, "diagnose") else None
    return Page("overview.html", "Overview", {"diagnosis": diagnosis})
