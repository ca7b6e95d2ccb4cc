"""Who looks at the console: the cookie, the form's key, where a page leads back to."""

from collections.abc import AsyncIterator
from urllib.parse import urlencode

import pytest
from console_pages import Browser
from server_world import TOKENS, ServerWorld, open_server


@pytest.fixture
async def world() -> AsyncIterator[ServerWorld]:
    async with open_server() as world:
        yield world


@pytest.fixture
async def browser(world: ServerWorld) -> Browser:
    return Browser(world.http)


async def test_the_one_who_is_not_known_signs_in_and_sees_the_page_that_was_asked_for(browser: Browser) -> None:
    page = await browser.open("/tasks?state=held")
    assert "Sign in" in page.text
    page = await browser.send("/sign-in", token=TOKENS["admin"])
    assert str(browser.answer.url) == "http://localhost/tasks?state=held"
    assert "caller-admin" in page.text


async def test_a_token_that_is_not_valid_signs_nobody_in(browser: Browser) -> None:
    page = await browser.sign_in("ärger")
    assert browser.answer.status_code == 401
    assert "You are not signed in" in page.text
    assert "set-cookie" not in browser.answer.headers


async def test_the_cookie_is_not_for_scripts_nor_for_forms_of_other_sites_and_opens_no_door_of_the_api(
    world: ServerWorld, browser: Browser
) -> None:
    sent = await world.http.post("/sign-in", data={"token": TOKENS["admin"], "next": "/"})
    assert {"HttpOnly", "SameSite=lax"} <= set(sent.headers["set-cookie"].split("; "))
    assert (await world.http.get("/v1/tasks")).status_code == 401
    assert (await world.http.get("/tasks")).status_code == 200


@pytest.mark.parametrize("elsewhere", ["https://evil.example/", "//evil.example/", "/\\evil.example", "tasks", ""])
async def test_signing_in_leads_to_no_other_site(world: ServerWorld, browser: Browser, elsewhere: str) -> None:
    sent = await world.http.post("/sign-in", data={"token": TOKENS["admin"], "next": elsewhere})
    assert sent.headers["location"] == "/"


async def test_signing_out_forgets_the_token(browser: Browser) -> None:
    await browser.sign_in(TOKENS["admin"])
    await browser.send("/sign-out")
    page = await browser.open("/tasks")
    assert "Sign in" in page.text


async def test_a_form_without_the_key_of_its_caller_acts_not(world: ServerWorld, browser: Browser) -> None:
    await browser.sign_in(TOKENS["admin"])
    for key in ("", "of another"):
        sent = await world.http.post("/act/pause_workflow/fulfil", data={"key": key, "field.reason": "x", "once": "1"})
        assert sent.status_code == 403
        assert "the form is not of this page" in sent.text


async def test_a_page_shows_and_offers_only_what_the_scope_allows(browser: Browser) -> None:
    page = await browser.sign_in(TOKENS["submit"])
    assert "Tasks" not in page.links
    page = await browser.open("/tasks")
    assert browser.answer.status_code == 403
    assert "lacks the scope read" in page.text


async def test_a_form_of_too_many_fields_or_too_many_bytes_is_refused_before_it_costs_anything(
    world: ServerWorld, browser: Browser
) -> None:
    headers = {"content-type": "application/x-www-form-urlencoded"}
    sent = await world.http.post("/sign-in", content="token=" + "x" * 20_000, headers=headers)
    assert sent.status_code == 413
    await browser.sign_in(TOKENS["admin"])
    sent = await world.http.post("/act/pause_workflow/fulfil", content="a=1&" * 10_001, headers=headers)
    assert sent.status_code == 422
    assert "more than 10,000 fields" in sent.text


@pytest.mark.parametrize("values", ["garbage", "[]", "{", '{"reason": 1e999}', "[" * 1_000])
async def test_values_in_the_address_of_a_form_that_are_no_json_object_are_refused(
    browser: Browser, values: str
) -> None:
    await browser.sign_in(TOKENS["admin"])
    page = await browser.open(f"/act/pause_workflow/fulfil?{urlencode({'with': values})}")
    assert browser.answer.status_code in (200, 422)
    assert "The server failed" not in page.text
