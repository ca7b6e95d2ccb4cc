"""Leases, workflows, versions, processes, tokens and what operators did: their pages, and who may see and do what."""

import asyncio
import re

import pytest
from board_shop import HOSTILE, BoardWorld, open_board
from console_pages import PageReader
from server_world import NARROWED, TOKENS
from starlette.requests import Request

from arriero.server.authentication import TokenAuthenticator

MARKUP = "<script>alert(1)</script>"
ME = {"by": "ana", "reason": "it was checked"}


async def test_a_lease_is_broken_by_a_form_that_warns() -> None:
    async with open_board(running=False) as world:
        lease = world.app.lease(HOSTILE)
        connection = await lease.connect()
        await connection.acquire("worker-1", 3_600.0)
        page = await world.browser.open("/leases")
        assert "<script>alert" not in world.browser.answer.text
        assert "held worker-1" in page.text
        link = next(href for href in page.links.values() if href.startswith("/act/break_lease/%3Cscript"))
        page = await world.browser.open(link)
        assert "Its holder may still be at work" in page.text
        page = await world.browser.send("/act/break_lease", field_reason="worker-1 hangs")
        assert "broken" in page.text
        assert "by caller-admin : worker-1 hangs" in page.text


async def test_the_leader_of_the_supervisors_is_named() -> None:
    async with open_board(running=False) as world:
        page = await world.browser.open("/leases")
        assert "No Supervisor leads now." in page.text
        assert "No lease was ever held." in page.text


async def test_a_workflow_is_paused_and_resumed_from_its_page() -> None:
    async with open_board() as world:
        await world.browser.open("/workflows")
        page = await world.browser.follow("order")
        assert "resume Refused: it is not paused." in page.text
        await world.browser.follow("pause")
        page = await world.browser.send("/act/pause_workflow/order", field_reason="the release is wrong")
        assert "Paused by caller-admin" in page.text
        page = await world.browser.open("/workflows")
        assert "by caller-admin : the release is wrong" in page.text
        await world.browser.follow("order")
        await world.browser.follow("resume")
        page = await world.browser.send("/act/resume_workflow/order", field_reason="it is right now")
        assert "active" in page.text


async def test_versions_and_processes_name_each_other() -> None:
    async with open_board() as world:
        page = await world.browser.open("/processes")
        (process,) = (await world.browser.http.get("/v1/processes", headers=bearer("read"))).json()["processes"]
        assert f"{process['name']} number {process['process']} ✓ alive" in page.text
        assert "desk" in page.links
        page = await world.browser.follow("Versions of code")
        assert f"order shop 1 1: {process['name']}" in page.text.replace(" : ", ": ")
        page = await world.browser.follow("Count the tasks")
        assert f"order shop 1 0 0 0 0 1: {process['name']}" in page.text.replace(" : ", ": ")


async def test_a_store_without_processes_says_how_one_starts() -> None:
    async with open_board(running=False) as world:
        for path, says in (
            ("/processes", "No process runs on this store."),
            ("/versions", "No process alive has a workflow"),
        ):
            assert says in (await world.browser.open(path)).text


def bearer(scope: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {TOKENS[scope]}"}


@pytest.mark.parametrize("path", ["/leases", "/workflows", "/workflows/order", "/versions", "/processes"])
async def test_what_is_of_the_whole_store_is_for_readers_without_verbs_and_not_for_restricted_tokens(path: str) -> None:
    async with open_board() as world:
        await world.open_as(path, TOKENS["read"])
        assert world.browser.answer.status_code == 200
        assert "/act/" not in world.browser.answer.text
        await world.open_as(path, NARROWED)
        assert world.browser.answer.status_code == 404
        await world.open_as(path, TOKENS["submit"])
        assert world.browser.answer.status_code == 403


# --- tokens
async def _open_form_of_token(world: BoardWorld) -> PageReader:
    await world.browser.open("/tokens")
    return await world.browser.follow("Create a token")


async def test_the_secret_of_a_new_token_is_on_its_page_alone_and_opens_the_door() -> None:
    async with open_board(running=False) as world:
        await _open_form_of_token(world)
        page = await world.browser.send(
            "/act/create_token",
            field_name=MARKUP,
            field_scopes="read, submit",
            field_workflows="order",
            field_expires_in="90d",
        )
        assert "<script>alert" not in world.browser.answer.text
        (secret,) = re.findall(r"arriero_\w+", page.text)
        assert world.browser.answer.headers["cache-control"] == "no-store"
        assert "set-cookie" not in world.browser.answer.headers
        assert "secret" not in str(world.browser.answer.url)
        page = await world.browser.open("/tokens")
        assert secret not in world.browser.answer.text
        assert "valid read , submit workflows order" in page.text
        (view,) = await world.app.tokens.list()
        assert view.created_by == "caller-admin"
        authenticator = TokenAuthenticator(world.app.session)
        request = Request({"type": "http", "headers": [(b"authorization", f"Bearer {secret}".encode())]})
        assert (await authenticator.authenticate(request)).name == MARKUP


async def test_the_form_of_a_token_that_is_sent_twice_makes_one_and_both_answers_show_it() -> None:
    async with open_board(running=False) as world:
        form = (await _open_form_of_token(world)).find_form("/act/create_token")
        body = {**form.fields, "field.name": "ci", "field.scopes": "read"}
        first, second = await asyncio.gather(*(world.browser.http.post(form.action, data=body) for _ in range(2)))
        assert (first.status_code, first.text) == (201, second.text)
        assert len(await world.app.tokens.list()) == 1


async def test_a_reload_of_the_new_token_makes_no_second_one_and_shows_no_secret(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("arriero.server.console.acting.SECRET_SECONDS", 0.0)
    async with open_board(running=False) as world:
        form = (await _open_form_of_token(world)).find_form("/act/create_token")
        body = {**form.fields, "field.name": "ci", "field.scopes": "read"}
        assert (await world.browser.http.post(form.action, data=body)).status_code == 201
        for _ in range(3):  # turns of the event loop: the time for a second click is over
            await asyncio.sleep(0)
        again = await world.browser.http.post(form.action, data=body)
        assert (again.status_code, again.headers["location"]) == (303, "/tokens")
        assert "arriero_" not in again.text
        page = await world.browser.open("/tokens")
        assert "its secret was shown then" in page.text
        assert len(await world.app.tokens.list()) == 1


async def test_a_token_that_cannot_be_so_is_refused_in_its_form() -> None:
    async with open_board(running=False) as world:
        await _open_form_of_token(world)
        page = await world.browser.send("/act/create_token", field_name="ci", field_scopes="everything")
        assert world.browser.answer.status_code == 422
        assert page.find_form("/act/create_token").fields["field.name"] == "ci"
        assert await world.app.tokens.list() == []


async def test_a_token_is_revoked_from_the_list() -> None:
    async with open_board(running=False) as world:
        await world.app.tokens.create("ci", scopes=["read"], by="ana")
        await world.browser.open("/tokens")
        page = await world.browser.follow("revoke")
        assert "is refused within a second" in page.text
        page = await world.browser.send("/act/revoke_token", field_reason="the laptop is lost")
        assert "by caller-admin : the laptop is lost" in page.text
        assert (await world.app.tokens.list())[0].state == "revoked"


@pytest.mark.parametrize("scope", ["read", "operate"])
async def test_tokens_are_for_admins_alone(scope: str) -> None:
    async with open_board(running=False) as world:
        await world.app.tokens.create("ci", scopes=["read"], by="ana")
        text = await world.open_as("/tokens", TOKENS[scope])
        assert world.browser.answer.status_code == 403
        assert "ci" not in text.split()
        await world.browser.open("/act/create_token")
        await world.browser.send("/act/create_token", field_name="mine", field_scopes="admin")
        assert world.browser.answer.status_code == 403
        assert len(await world.app.tokens.list()) == 1


# --- audit
async def test_the_audit_lists_acts_of_all_kinds_newest_first_with_links_to_their_things() -> None:
    async with open_board() as world:
        await world.block("k")
        await world.app.convoy("k").park(**ME)
        await world.app.task("k-1").compensate(**ME)
        await world.app.agent("desk").pause(by="eva", reason=HOSTILE)
        page = await world.browser.open("/audit")
        assert "<script>alert" not in world.browser.answer.text
        assert "eva paused agent desk <script>alert(1)</script>/../\\u202e" in page.text
        assert (
            page.text.index("eva paused") < page.text.index("ana compensate task") < page.text.index("ana park convoy")
        )
        assert page.links["k-1"] == "/tasks/k-1"
        page = await world.browser.open("/audit?by=eva")
        assert "ana" not in page.text.split()
        await world.browser.follow("desk")
        assert world.browser.answer.url.path == "/agents/desk"


async def test_the_audit_comes_in_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_board(running=False) as world:
        for number in range(52):
            await world.app.agent("desk").pause(by="ana", reason=f"reason-{number}")
            await world.app.agent("desk").resume(by="eva", reason="again")
        page = await world.browser.open("/audit")
        assert "reason-51" in page.text
        assert "reason-20" not in page.text
        page = await world.browser.follow("Next page")
        assert "reason-20" in page.text
        monkeypatch.setattr("arriero.client.operator_acts.SCANNED_MAX", 10)
        monkeypatch.setattr("arriero.client.operator_acts.CHUNK", 10)
        page = await world.browser.open("/audit?by=nobody")
        assert "Nothing in this part of the history" in page.text
        assert "Next page" in page.links


async def test_an_empty_audit_says_so_and_acts_on_tokens_are_for_admins_alone() -> None:
    async with open_board(running=False) as world:
        page = await world.browser.open("/audit")
        assert "No operator has done anything yet." in page.text
        await world.app.tokens.create("ci", scopes=["read"], by="ana")
        assert "created token ci" in (await world.browser.open("/audit")).text
        assert "created token ci" not in await world.open_as("/audit", TOKENS["read"])
        assert world.browser.answer.status_code == 200
        await world.open_as("/audit", NARROWED)
        assert world.browser.answer.status_code == 404
