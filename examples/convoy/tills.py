"""A shop's tills number their receipts, 1, 2, ..., and send them over a line that loses some and turns others around.

The receipts of one till are one convoy: each is booked in its turn, and the drawer's total is the state of the key.
"""

from __future__ import annotations

from dataclasses import dataclass

import arriero
from arriero import Agent, App, ConvoyPolicy, Permanent, Supervision, workflow


@dataclass(frozen=True)
class Drawer:
    """What is kept of a till from one receipt to the next."""

    receipts: int = 0
    pence: int = 0


booked: list[tuple[str, int]] = []  # the remote side: (till, number), in the order in which they came
accounts = Agent("accounts")


@accounts.step(supervision=Supervision(attempts=1, then="hold"))  # refused permanently: an operator decides
def book(till: str, number: int, article: str, pence: int) -> None:
    if article == "?":
        raise Permanent("no such article", code="no_such_article")
    booked.append((till, number))


# A receipt held parks its till: whatever comes after it would be added to a total that nobody can vouch for.
@workflow(convoy_policy=ConvoyPolicy(head="park", gap="wait", gap_within=3600))
async def receipt(till: str, number: int, article: str, pence: int) -> int:
    """Book a receipt. Returns: what is in the drawer after it, in pence."""
    await book(till, number, article, pence)
    before = arriero.convoy_state(Drawer) or Drawer()
    after = Drawer(before.receipts + 1, before.pence + pence)
    arriero.keep_convoy_state(after)
    return after.pence


app = App("tills", agents=[accounts], workflows=[receipt])
