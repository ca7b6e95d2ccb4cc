"""Tokens: who may use the API and the console, and what each may do."""

from ..calls import Call
from ..scopes import Needs, Scope
from .asking import ask
from .page import Page, page

STATES = {"valid": ("good", "✓"), "expired": ("wait", "·"), "revoked": ("bad", "✗")}


@page("/tokens", Needs(Scope.ADMIN), "Tokens: what each may do, and until when.", is_live=True)
async def show_tokens(call: Call) -> Page:
    listed = await ask(call, "list_tokens")
    tokens = sorted(listed.tokens, key=lambda one: (one.state != "valid", -one.created_at.timestamp()))
    return Page("tokens.html", "Tokens", {"tokens": tokens, "states": STATES})
