"""Groups of like failures, and one verb for all of a group."""

from collections.abc import AsyncIterator

import pytest
from console_pages import Browser
from server_shop import ShopWorld, open_shop
from server_world import TOKENS, open_server

from arriero import Agent, App, Attempt, Permanent, Supervision, workflow
from arriero.server.console.failures import find_place

ADMIN = {"Authorization": f"Bearer {TOKENS['admin']}"}


@pytest.fixture
async def world() -> AsyncIterator[ShopWorld]:
    async with open_shop(running=True) as world:
        for number in range(3):
            body = {"workflow": "inspect_item", "arguments": {"item": "lamp"}, "id": f"held-{number}"}
            (await world.http.post("/v1/tasks", json=body)).raise_for_status()
            await world.http.get(f"/v1/tasks/held-{number}/result?wait=30")
        yield world


@pytest.fixture
async def browser(world: ShopWorld) -> Browser:
    browser = Browser(world.http)
    await browser.sign_in(TOKENS["admin"], "/failures")
    return browser


async def test_like_failures_are_one_group_that_leads_to_its_tasks(browser: Browser) -> None:
    text = browser.page.text
    assert "inspect_item , audit ! 3 held closed" in text
    assert "the books do not open" in text
    assert "A step failed. First at" in text
    await browser.follow("show tasks")
    assert str(browser.answer.url) == "http://localhost/tasks?state=held&workflow=inspect_item&step=audit&code=closed"
    assert browser.answer.text.count('<th scope="row">') == 3


async def test_one_verb_for_all_of_a_group_leads_back_to_the_groups(world: ShopWorld, browser: Browser) -> None:
    await browser.follow("compensate all")
    await browser.send("/bulk/compensate", field_reason="never mind", preview="true")
    assert "Compensate would be done for 3 tasks" in browser.page.text
    await browser.send("/bulk/compensate")
    assert "Compensate: done for 3 tasks" in browser.page.text
    await browser.follow("Back")
    assert "No failure needs an operator." in browser.page.text


async def test_a_group_has_its_filter_as_a_value_in_the_api(world: ShopWorld, browser: Browser) -> None:
    (cause,) = (await world.http.get("/v1/alerts/causes", headers=ADMIN)).json()["causes"]
    assert cause["filter"] == {"state": "held", "workflow": "inspect_item", "step": "audit", "code": "closed"}
    body = {"filter": cause["filter"], "reason": "try", "dry_run": True}
    tried = (await world.http.post("/v1/tasks:resubmit", json=body, headers=ADMIN)).json()
    assert len(tried["done"]) == 3


async def test_only_who_may_operate_is_offered_verbs(world: ShopWorld, browser: Browser) -> None:
    await browser.send("/sign-out")
    page = await browser.sign_in(TOKENS["read"], "/failures")
    assert "3 held" in page.text
    assert "show tasks" in page.links
    assert not {"resubmit all", "compensate all"} & page.links.keys()


async def test_names_and_reasons_are_shown_as_text() -> None:
    till = Agent("till", breaker=None)

    @till.step(name="<script>", supervision=Supervision(attempts=1, then="hold"))
    async def audit(attempt: Attempt) -> str:
        raise Permanent("<img src=x>\nand more \u202e", code="<b>")

    @workflow(name="../<i>")
    async def inspect() -> str:
        return await audit()

    app = App("shop", agents=[till], workflows=[inspect], store="memory://")
    async with open_server(app) as world, app.running():
        task = await app.submit(inspect(), task_id='"><script>')
        await world.http.get(f"/v1/tasks/{task.id.replace('>', '%3E').replace('<', '%3C')}/result?wait=30")
        browser = Browser(world.http)
        page = await browser.sign_in(TOKENS["admin"], "/failures")
        for tag in ("<script>", "<img", "<i>", "<b>", "\u202e"):
            assert tag not in browser.answer.text.replace("<script src=", "")
        assert "<img src=x>" in page.text
        await browser.follow("show tasks")
        assert browser.answer.status_code == 200
        assert browser.answer.text.count('<th scope="row">') == 1


async def test_a_store_without_failures_says_so() -> None:
    async with open_shop() as world:
        page = await Browser(world.http).sign_in(TOKENS["read"], "/failures")
        assert "No failure needs an operator." in page.text


@pytest.mark.parametrize(
    ("cause", "step", "code", "task_id", "place"),
    [
        ("breaker", "bank[eu/1]", "shop", "", "/agents/bank?app=shop"),
        ("schedule", "a/b", "", "", "/schedules/a%2Fb"),
        ("question", "question:legal", "legal & co", "t1", "/inbox?of=legal+%26+co"),
        ("unreadable", "", "task.state", "a/b", "/tasks/a%2Fb"),
        ("gap", "", "", "t1", "/tasks/t1"),
        ("unreadable", "breaker", "", "", ""),
    ],
)
def test_a_failure_with_a_remedy_that_is_not_a_verb_leads_to_its_thing(
    cause: str, step: str, code: str, task_id: str, place: str
) -> None:
    assert find_place(cause, step, code, task_id)[0] == place
