"""Leases of the store, who leads the Supervisors, and alerts."""

from typing import Annotated, Literal

import msgspec
from fastapi import Query

from ...client.alerts import AlertCauses, ListedAlert, build_listed_alert
from ...client.leases import BreakLeaseAnswer, LeaderView
from ...client.task_verbs import check_signature
from ...errors import UnknownName
from ...leases import LeaseView
from ...leases.store import build_lease_view
from ...model import NUMBER_MAX
from ...operations.problems import UNKNOWN_NAME
from ...payloads.codec import check_id
from ..calls import Call
from ..cursors import CURSOR_INVALID, Order, open_cursors
from ..parameters import LIMIT, Cursor, LeaseName, Limit
from ..routing import RouteGroup
from ..scopes import Needs, Scope

leases = RouteGroup("leases")
alerts = RouteGroup("alerts")


class LeaseListAnswer(msgspec.Struct, frozen=True):
    """All leases that anybody ever held in the store, by name, with the Supervisors'."""

    leases: tuple[LeaseView, ...]


class BreakLeaseRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Request to break a lease. ``at_once``: let another one lead now, though its holder may still believe that it leads."""

    reason: Annotated[str, msgspec.Meta(description="Why; it is kept in the history. Who asks is the token's name.")]
    at_once: Annotated[
        bool,
        msgspec.Meta(
            title="Immediately",
            description="Let another one lead now, though its holder may still believe that it leads: two may act meanwhile.",
        ),
    ] = False


class LeaderAnswer(msgspec.Struct, frozen=True):
    """The Supervisor that leads; None: none does now."""

    leader: LeaderView | None


class AlertPageAnswer(msgspec.Struct, frozen=True):
    """A page of alerts. ``next``: the cursor of the next page; None: this was the last one."""

    alerts: tuple[ListedAlert, ...]
    next: str | None


@leases.operation(
    "GET",
    "/v1/leases",
    Needs(Scope.READ),
    summary="List the leases of the store, and who holds them.",
)
async def list_leases(call: Call) -> LeaseListAnswer:
    return LeaseListAnswer(tuple(await call.client.leases()))


@leases.operation(
    "GET",
    "/v1/leases/{name}",
    Needs(Scope.READ),
    summary="A lease: its holder, its term, and since when.",
    problems=(UNKNOWN_NAME,),
)
async def show_lease(call: Call, name: LeaseName) -> LeaseView:
    store = call.session.store
    now, row = await store.find_lease(check_id(name, "name of a lease"))
    if row is None:
        raise UnknownName(f"nobody ever held a lease {name!r} in the store {store.url}; see `arriero lease list`")
    return build_lease_view(row, now)


@leases.operation(
    "POST",
    "/v1/leases/{name}:break",
    Needs(Scope.OPERATE),
    summary="Take a lease away from its holder, because it hangs.",
    body=BreakLeaseRequest,
    examples={"break": {"reason": "worker-1 hangs"}},
)
async def break_lease(call: Call, name: LeaseName) -> BreakLeaseAnswer:
    asked = call.read(BreakLeaseRequest)
    by, reason = check_signature(call.caller.name, asked.reason)
    return BreakLeaseAnswer(
        "break", "done", await call.client.lease(name).break_lease(by, reason, at_once=asked.at_once)
    )


@leases.operation(
    "GET",
    "/v1/leader",
    Needs(Scope.READ),
    summary="The Supervisor that leads now.",
)
async def show_leader(call: Call) -> LeaderAnswer:
    return LeaderAnswer(await call.client.leader())


@alerts.operation(
    "GET",
    "/v1/alerts/causes",
    Needs(Scope.READ),
    summary="The open alerts by cause: how many, since when, and one command for all. Only the first 10,000 are read.",
)
async def list_alert_causes(call: Call) -> AlertCauses:
    return await call.client.alert_causes()


@alerts.operation(
    "GET",
    "/v1/alerts",
    Needs(Scope.READ),
    summary="List what needs an operator, in pages.",
    problems=(CURSOR_INVALID,),
)
async def list_alerts(
    call: Call,
    state: Annotated[
        Literal["open", "all"], Query(description="Only those that are open, or closed ones, too.")
    ] = "open",
    order: Annotated[Order, Query(description="Of their opening, or the newest first.")] = "oldest",
    limit: Limit = LIMIT,
    cursor: Cursor = None,
) -> AlertPageAnswer:
    store, listing = call.session.store, ["alerts", state, order]
    cursors = await open_cursors(store)
    last = cursors.read_number(cursor, listing)
    before = (last or NUMBER_MAX) if order == "newest" else None
    rows = await store.alerts(open_only=state == "open", after=0 if before else last, before=before, limit=limit + 1)
    more = cursors.write(listing, rows[limit - 1].no) if len(rows) > limit else None
    return AlertPageAnswer(tuple(build_listed_alert(row, store.store_id) for row in rows[:limit]), more)
