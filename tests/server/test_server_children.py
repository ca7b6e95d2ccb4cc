"""Children over HTTP: their list in pages, what a task says of its parent and its children, and what a narrow token sees."""

import httpx2
from family import build_app, tell, trip, trip_waits
from server_world import FixedTokens, open_server
from starlette.requests import Request

from arriero import App
from arriero.model.tokens import Reach
from arriero.server.application import build_application
from arriero.server.calls import Caller


class OfBookings(FixedTokens):
    """Every caller reaches bookings alone."""

    async def authenticate(self, request: Request) -> Caller:
        return Caller("partner", frozenset({"admin"}), reach=Reach(apps=("trips",), workflows=("booking",)))


async def test_children_are_listed_in_pages_in_the_order_of_the_steps() -> None:
    app = build_app()
    async with open_server(app) as world, app.running(store="memory://"):
        await app.submit(trip(), task_id="trip-7")
        await trip_waits(app)
        found: list[dict[str, object]] = []
        cursor = ""
        while cursor is not None:
            page = (await world.http.get(f"/v1/tasks/trip-7/children?limit=3{cursor and f'&cursor={cursor}'}")).json()
            found += page["children"]
            cursor = page["next"]
        assert [(one["ordinal"], one["id"], one["state"], one["detached"]) for one in found] == [
            (1, "trip-7/tell.1", "processing", True),
            (2, "trip-7/booking.2", "processed", False),
            (3, "trip-7/booking.3", "held", False),
            (4, "trip-7/booking.4", "processing", False),
        ]
        shown = (await world.http.get("/v1/tasks/trip-7/booking.3".replace("7/b", "7%2Fb"))).json()
        assert (shown["parent"], shown["parent_step"]) == ("trip-7", "booking[#2]")
        step = (await world.http.get("/v1/tasks/trip-7")).json()["steps"][2]
        assert (step["kind"], step["child"], step["child_state"]) == ("child", "trip-7/booking.3", "held")
        listed = (await world.http.get("/v1/tasks?parent=trip-7&state=held")).json()["tasks"]
        assert [task["id"] for task in listed] == ["trip-7/booking.3"]
        told = (await world.http.get("/v1/tasks/trip-7/explain")).json()["reasons"]
        assert [reason["step"] for reason in told if reason["kind"] == "child_held"] == ["booking[#2]"]


async def test_a_token_for_one_workflow_sees_no_parent_and_no_children_of_others() -> None:
    app = build_app()
    async with app, app.running(store="memory://"):
        await app.submit(trip(), task_id="trip-7")
        await app.submit(tell("x"), task_id="tell-1")
        await trip_waits(app)
        async with _asking(app) as http:
            shown = (await http.get("/v1/tasks/trip-7%2Fbooking.3")).json()
            assert (shown["state"], shown["parent"], shown["parent_step"]) == ("held", None, None)
            for path in ("trip-7", "trip-7/children", "tell-1/children", "trip-7%2Ftell.1"):
                assert (await http.get(f"/v1/tasks/{path}")).status_code == 404
            explained = (await http.get("/v1/tasks/trip-7%2Fbooking.3/explain")).json()
            assert [one["kind"] for one in explained["reasons"] if one["kind"].startswith("child_of")] == [
                "child_of_none"
            ]


def _asking(app: App) -> httpx2.AsyncClient:
    transport = httpx2.ASGITransport(app=build_application(app, OfBookings()), raise_app_exceptions=False)
    return httpx2.AsyncClient(transport=transport, base_url="http://localhost", headers={"Authorization": "Bearer x"})
