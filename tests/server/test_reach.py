"""A token that is restricted to Apps or workflows: everything else is not there for it, on every route."""

import asyncio
import importlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from postgres_servers import server, worker
from starlette.requests import Request
from test_withholding import list_documented
from vault import Ask, Vault

from arriero import Entry, Leadership
from arriero.client.ledger import BATCH
from arriero.model import LedgerState
from arriero.model.tokens import Reach
from arriero.server.authentication import TokenAuthenticator
from arriero.server.calls import Caller
from arriero.store.task_filter import TaskFilter

REPLIES = importlib.import_module("arriero.server.routes.replies")  # the package has the group under this name
EVERY_SCOPE = ("submit", "read", "read-payloads", "operate", "agent:*", "replies:*")
# What is of the whole store is not there for a restricted token.
REFUSED = {
    "GET /metrics", "GET /v1/agents", "GET /v1/agents/{agent}", "GET /v1/agents/{agent}/metrics", "GET /v1/alerts",
    "GET /v1/alerts/causes", "GET /v1/convoys", "GET /v1/convoys/{key}", "GET /v1/doctor", "GET /v1/overview", "GET /v1/leader",
    "GET /v1/leases",
    "GET /v1/leases/{name}", "GET /v1/ledgers", "GET /v1/ledgers/{ledger_id}", "GET /v1/tokens", "POST /v1/agents/{agent}:close",
    "POST /v1/agents/{agent}:open", "POST /v1/agents/{agent}:pause", "POST /v1/agents/{agent}:resume",
    "POST /v1/convoys/{key}:move-to-head", "POST /v1/convoys/{key}:park", "POST /v1/convoys/{key}:release",
    "POST /v1/convoys/{key}:set", "POST /v1/convoys/{key}:skip", "POST /v1/leases/{name}:break", "POST /v1/tasks:assign-app",
    "POST /v1/tokens", "POST /v1/tokens/{token_id}:revoke", "GET /v1/workflows", "GET /v1/workflows/{workflow}",
    "GET /v1/code-versions", "GET /v1/processes", "GET /v1/acts", "GET /v1/agents/{agent}/minutes",
    "POST /v1/workflows/{workflow}:pause", "POST /v1/workflows/{workflow}:resume",
}  # fmt: skip
PLANTED = (
    "sold",
    "refused",
    "held",
    "behind",
    "by-hand",
    "edited",
    "retried",
    "called",
    "sleeping",
    "asking",
    "nightly",
    "stuck",
)
STORES = ["sqlite", "postgres"]


def build_url(kind: str, tmp_path: Path, name: str) -> str:
    return f"sqlite:///{tmp_path / 'two.db'}" if kind == "sqlite" else server(16).create_database(name + worker())


class FixedReach:
    """Says of each caller that it has every scope, in some Apps and workflows; of the token ``admin``, in all."""

    def __init__(self, reach: Reach) -> None:
        self._reach = reach

    async def authenticate(self, request: Request) -> Caller:
        if request.headers.get("authorization") == "Bearer admin":
            return Caller("admin", frozenset({"admin"}))
        return Caller("partner", frozenset({*EVERY_SCOPE, "admin"}), "", self._reach)


@asynccontextmanager
async def two_vaults(url: str) -> AsyncIterator[tuple[Vault, Vault]]:
    """Two Apps of one store, with secrets in the tasks of each."""
    shop, travel = Vault("shop", url), Vault("travel", url)
    async with shop.running(), travel.running():
        await shop.plant()
        await travel.plant()
        yield shop, travel


class Walk:
    """Requests at the server of one App, for what is there of the same or of the other one."""

    def __init__(self, served: Vault, meant: Vault, reach: Reach) -> None:
        self.served, self.meant = served, meant
        self.answers: list[tuple[Ask, httpx2.Response]] = []
        self._transport = served.transport(authenticator=FixedReach(reach))

    async def go(self, turn: str) -> None:
        await self.meant.plant_for(turn)
        admin = {"Authorization": "Bearer admin"}
        async with httpx2.AsyncClient(transport=self.meant.transport(), base_url="http://localhost") as http:
            taken = await self.meant.take_for(http, admin)
        async with httpx2.AsyncClient(transport=self._transport, base_url="http://localhost") as http:

            async def work(leadership: Leadership) -> None:
                for ask in self.meant.list_requests(turn, taken):
                    self.answers.append((ask, await self._ask(http, ask)))

            await self.served.app.mutex("nightly").run_once(work)

    async def _ask(self, http: httpx2.AsyncClient, ask: Ask) -> httpx2.Response:
        given: dict[str, Any] = {"json": ask.body}
        headers = {"Authorization": "Bearer partner", **ask.headers}
        if isinstance(ask.body, bytes):
            given, headers = {"content": ask.body}, {**headers, "Content-Type": "application/x-ndjson"}
        method = ask.operation.split(" ")[0]
        answer = await asyncio.wait_for(http.request(method, ask.path, headers=headers, **given), 60)
        assert answer.status_code < 500, (ask, answer.text)
        return answer


async def list_paused(vault: Vault) -> list[str]:
    rows = await vault.app.session.store.list_tasks(TaskFilter(app=vault.name, paused=True))
    return [row.task_id for row in rows]


def is_of_one_thing(ask: Ask) -> bool:
    return any(part in ask.operation for part in ("{task_id}", "{name}", "{key}", "{agent}", "{number}"))


@pytest.mark.parametrize("kind", STORES)
async def test_what_is_of_another_app_is_not_there_for_a_token_on_any_route(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(REPLIES, "UNACKNOWLEDGED_MAX", 1)  # a stream ends after one message
    reach = Reach(apps=("shop",))
    async with two_vaults(build_url(kind, tmp_path, "reach_")) as (shop, travel):
        await shop.submit("told", "sell", reply_to=travel.id("desk"))  # so that the stream of the queue has a message
        await shop.end("told")
        for served in (shop, travel):
            asked = Walk(served, travel, reach)
            await asked.go(f"by-{served.name}")
            for ask, answer in asked.answers:
                for secret in (travel.payload, travel.reason):
                    assert secret not in answer.text or secret in str(ask.body), (served.name, ask, answer.text)
                if ask.operation in REFUSED or is_of_one_thing(ask):
                    assert answer.status_code == 404, (served.name, ask, answer.text)
                if not is_of_one_thing(ask):
                    found = [one for one in PLANTED if f"travel-{one}" in answer.text]
                    assert found == [], (served.name, ask, answer.text)
        assert await list_paused(travel) == []


async def test_a_token_does_in_its_own_app_whatever_is_not_of_the_whole_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(REPLIES, "UNACKNOWLEDGED_MAX", 5)
    async with two_vaults(build_url("sqlite", tmp_path, "")) as (shop, _):
        asked = Walk(shop, shop, Reach(apps=("shop",)))
        await asked.go("own")
        answered = {ask.operation for ask, answer in asked.answers if answer.is_success}
        assert list_documented(shop.build_server()) - answered == REFUSED
        for ask, answer in asked.answers:
            if ask.operation in REFUSED:
                assert (answer.status_code, answer.json()["code"]) == (404, "out-of-reach"), ask
            assert "travel-" not in answer.text, (ask, answer.text)


@asynccontextmanager
async def asking(vault: Vault, reach: Reach) -> AsyncIterator[httpx2.AsyncClient]:
    transport = vault.transport(authenticator=FixedReach(reach))
    headers = {"Authorization": "Bearer partner"}
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost", headers=headers) as http:
        yield http


async def test_a_taken_id_says_nothing_of_the_task_that_has_it(tmp_path: Path) -> None:
    async with (
        two_vaults(build_url("sqlite", tmp_path, "")) as (shop, travel),
        asking(shop, Reach(apps=("shop",))) as http,
    ):
        for order in (f"{travel.payload}: order", "another"):
            body = {"workflow": "sell", "arguments": {"order": order}}
            headers = {"Idempotency-Key": "travel-sold", "Prefer": "wait=30"}
            answer = await http.post("/v1/tasks", json=body, headers=headers)
            assert (answer.status_code, answer.json()["code"]) == (409, "task-exists")
            assert answer.json()["detail"] == "task_id 'travel-sold' is taken; use another one"
            many = await http.post("/v1/tasks:submit", json={"tasks": [{**body, "id": "travel-sold"}]})
            assert many.json()["results"][0]["problem"]["detail"] == answer.json()["detail"]
        own = {"workflow": "sell", "arguments": {"order": f"{shop.payload}: order"}}
        own |= {"convoy": "shop-ana", "reply_to": "shop-desk"}
        again = await http.post("/v1/tasks", json=own, headers={"Idempotency-Key": "shop-sold", "Prefer": "wait=30"})
        assert again.status_code == 200, again.text
        assert (again.json()["created"], again.json()["end"]["state"]) == (False, "processed")


async def test_a_plan_of_another_token_reaches_no_task_of_another_app(tmp_path: Path) -> None:
    async with two_vaults(build_url("sqlite", tmp_path, "")) as (shop, travel):
        which = {"reason": "checked", "filter": {"workflow": "wait_long"}}
        async with asking(shop, Reach(apps=("shop",))) as http:
            admin = {"Authorization": "Bearer admin"}
            planned = (await http.post("/v1/tasks:pause", json={**which, "dry_run": True}, headers=admin)).json()
            assert {"shop-sleeping", "travel-sleeping"} <= set(planned["done"])
            done = (await http.post("/v1/tasks:pause", json={"reason": "checked", "plan": planned["plan"]})).json()
            assert set(done["done"]) == {one for one in planned["done"] if one.startswith("shop-")}
            assert "travel-" not in str(done)
        assert await list_paused(travel) == []


async def test_pages_of_a_list_have_what_is_reached_and_nothing_else(tmp_path: Path) -> None:
    async with two_vaults(build_url("sqlite", tmp_path, "")) as (shop, travel):
        for number in range(3):
            await shop.submit(f"late-{number}", "wait_long")
            await travel.submit(f"late-{number}", "wait_long")
        for order in ("oldest", "newest"):
            found: list[str] = []
            cursor = ""
            async with asking(travel, Reach(apps=("shop",), workflows=("wait_long", "sell"))) as http:
                while cursor is not None:
                    more = f"&cursor={cursor}" if cursor else ""
                    page = (await http.get(f"/v1/tasks?limit=2&order={order}{more}")).json()
                    found += [task["id"] for task in page["tasks"]]
                    cursor = page["next"]
            assert sorted(found) == [
                *(
                    "shop-behind",
                    "shop-entry",
                    "shop-late-0",
                    "shop-late-1",
                    "shop-late-2",
                    "shop-sleeping",
                    "shop-sold",
                ),
            ]


async def test_a_ledger_that_another_app_writes_is_neither_shown_nor_discarded_by_its_id(tmp_path: Path) -> None:
    async with two_vaults(build_url("sqlite", tmp_path, "")) as (shop, travel):

        async def write() -> AsyncIterator[Entry]:
            for _ in range(BATCH):  # one transaction
                yield Entry.bad(travel.reason)
            raise ConnectionError("the line was cut")

        with pytest.raises(ConnectionError):
            await travel.app.submit_ledger("payroll", write(), bad="set_aside")
        async with asking(shop, Reach(apps=("shop",))) as http:
            for entries in ([], [{"workflow": "nobody"}], [{"workflow": "sell", "arguments": {"order": "lamp"}}]):
                answer = await http.put("/v1/ledgers/payroll", json={"entries": entries})
                assert answer.status_code == 422
                assert travel.reason not in answer.text
        ledger = await travel.app.session.store.find_ledger("payroll")
        assert ledger is not None
        assert (ledger.state, ledger.aside) == (LedgerState.WRITING, BATCH)


async def test_a_ledger_does_not_name_the_task_that_has_a_number_in_a_convoy(tmp_path: Path) -> None:
    async with two_vaults(build_url("sqlite", tmp_path, "")) as (shop, travel):
        await travel.submit("first", "wait_long", convoy="ordered", sequence=1)
        entry = {"workflow": "sell", "arguments": {"order": "lamp"}, "convoy": "ordered", "sequence": 1}
        async with asking(shop, Reach(apps=("shop",))) as http:
            for bad in ("refuse", "set_aside"):
                answer = await http.put(f"/v1/ledgers/{bad}", json={"entries": [entry], "bad": bad})
                assert "line 1: sequence 1 of convoy 'ordered' is another operation" in answer.text
                assert "travel" not in answer.text


async def test_a_message_of_another_app_is_neither_read_nor_acknowledged(tmp_path: Path) -> None:
    async with two_vaults(build_url("sqlite", tmp_path, "")) as (shop, travel):
        for vault in (travel, shop):
            await vault.submit("told", "sell", reply_to="common")
            await vault.end("told")
        async with asking(shop, Reach(apps=("shop",))) as http:
            messages = (await http.get("/v1/replies/common?limit=3")).json()["messages"]
            assert {one["event"]["subject"] for one in messages} == {"shop-told"}
            numbers = list(range(1, 100))
            assert (await http.post("/v1/replies/common:acknowledge", json={"numbers": numbers})).status_code == 204
            assert (await http.get("/v1/replies/common")).json()["messages"] == []
        left = await travel.app.session.store.load_statuses("common", 100)
        assert {status.task_id for status in left} == {"travel-told"}


async def test_a_task_that_waits_behind_one_of_another_app_does_not_name_it(tmp_path: Path) -> None:
    async with two_vaults(build_url("sqlite", tmp_path, "")) as (shop, travel):
        await travel.submit("first", "inspect_order", convoy="common")
        await travel.end("first")
        await shop.submit("second", "wait_long", convoy="common")
        async with asking(shop, Reach(apps=("shop",))) as http:
            for page in ("", "/history", "/children", "/explain", "/result", "/inputs?of=signals"):
                answer = await http.get(f"/v1/tasks/shop-second{page}")
                assert answer.is_success
                assert "travel" not in answer.text, answer.text
            paused = await http.post("/v1/tasks/shop-second:pause", json={"reason": "checked"})
            assert (paused.status_code, "travel" in paused.text) == (200, False)
            refused = await http.post("/v1/tasks/shop-second:answer", json={"reason": "x", "step": "#1", "result": 1})
            assert "travel" not in refused.text


async def test_a_workflow_out_of_reach_is_an_unknown_one(tmp_path: Path) -> None:
    async with two_vaults(build_url("sqlite", tmp_path, "")) as (shop, _):
        reach = Reach(workflows=("sell", "step:charge"))
        async with asking(shop, reach) as http:
            for name, status in (
                ("sell", 201),
                ("charge", 201),
                ("refuse", 422),
                ("nobody", 422),
                ("step:decline", 422),
            ):
                body = {"workflow": name, "arguments": {"order": "lamp"}}
                answer = await http.post("/v1/tasks", json=body)
                assert answer.status_code == status, answer.text
                if status == 422:
                    assert answer.json()["detail"].endswith("workflows: sell; steps: charge")
            assert (await http.get("/v1/tasks/shop-refused")).status_code == 404
            assert (await http.get("/v1/tasks/shop-sold")).status_code == 200
            take = await http.post("/v1/agents/bank-shop/requests:take", json={"wait_seconds": 0})
            assert (take.status_code, take.json()["code"]) == (404, "out-of-reach")
            body = {"reason": "x", "name": "hourly", "workflow": "refuse", "arguments": {"order": "a"}, "every": 60.0}
            assert (await http.post("/v1/schedules", json=body)).status_code == 422


async def test_the_restriction_of_a_token_is_kept_with_it_and_shown(tmp_path: Path) -> None:
    async with two_vaults(build_url("sqlite", tmp_path, "")) as (shop, _):
        created = await shop.app.tokens.create(
            "partner", scopes=["read"], by="ana", apps=["travel"], workflows=["sell"]
        )
        assert (created.about.apps, created.about.workflows) == (("travel",), ("sell",))
        transport = shop.transport(authenticator=TokenAuthenticator(shop.app.session))
        headers = {"Authorization": f"Bearer {created.token}"}
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost", headers=headers) as http:
            assert (await http.get("/v1/tasks/shop-sold")).status_code == 404
            assert (await http.get("/v1/tasks/travel-sold")).json()["app"] == "travel"
            assert (await http.get("/v1/tasks/travel-refused")).status_code == 404
