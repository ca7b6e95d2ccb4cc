"""Acts with a form that is made from the types of the code: edit and resubmit, a result by hand, a signal."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import signal_shop
from console_pages import Browser
from server_shop import ShopWorld, open_shop
from server_world import TOKENS, ServerWorld, open_server


@pytest.fixture
async def world() -> AsyncIterator[ShopWorld]:
    async with open_shop(running=True) as world:
        await world.sell()
        yield world


async def sign_in(world: ServerWorld, token: str = "admin") -> Browser:
    browser = Browser(world.http)
    await browser.sign_in(TOKENS[token])
    return browser


@pytest.fixture
async def browser(world: ShopWorld) -> Browser:
    return await sign_in(world)


async def read_history(world: ServerWorld, task_id: str) -> list[dict[str, Any]]:
    answer = await world.http.get(
        f"/v1/tasks/{task_id}/history?limit=200", headers={"Authorization": f"Bearer {TOKENS['admin']}"}
    )
    return [event for entry in answer.json()["entries"] for event in entry["events"]]


async def count_acts(world: ServerWorld, task_id: str) -> int:
    return sum(event["type"] == "operator.action" for event in await read_history(world, task_id))


async def test_arguments_are_edited_in_a_form_of_their_types_and_the_step_is_done_again(
    world: ShopWorld, browser: Browser
) -> None:
    await browser.open("/tasks/held")
    page = await browser.follow("edit and resubmit")
    form = page.find_form("/tasks/held/edit")
    assert form.fields["typed/item"] == "lamp"
    page = await browser.send("/tasks/held/edit", **{"typed/item": "book", "reason": "the lamp is sold out"})
    assert "Done: Resubmit held." in page.text
    edited = [event for event in await read_history(world, "held") if event["type"] == "operator.action"]
    assert [(one["by"], one["reason"]) for one in edited] == [("caller-admin", "the lamp is sold out")]


async def test_a_preview_says_what_would_be_done_and_does_nothing(world: ShopWorld, browser: Browser) -> None:
    await browser.open("/tasks/held/edit")
    page = await browser.send("/tasks/held/edit", **{"typed/item": "book", "reason": "why", "preview": "true"})
    assert "Preview: nothing was done yet." in page.text
    assert page.find_form("/tasks/held/edit").fields["typed/item"] == "book"
    assert await count_acts(world, "held") == 0


async def test_arguments_that_are_left_as_they_are_resubmit_without_an_edit(world: ShopWorld, browser: Browser) -> None:
    await browser.open("/tasks/held/edit")
    await browser.send("/tasks/held/edit", reason="again")
    assert await count_acts(world, "held") == 1
    assert not [event for event in await read_history(world, "held") if "edited" in event["type"]]


async def test_a_result_by_hand_is_typed_and_refused_where_it_does_not_fit(world: ShopWorld, browser: Browser) -> None:
    await browser.open("/tasks/held")
    page = await browser.follow("answer")
    assert "The result of audit" in page.text
    page = await browser.send("/tasks/held/answer", typed="the books are fine", reason="looked at by hand")
    assert "Done: Answer held." in page.text
    page = await browser.open("/tasks/held/answer?step=none")
    assert browser.answer.status_code == 422
    assert "no step" in page.text


async def test_the_second_of_two_operators_gets_the_form_again_with_the_new_state(
    world: ShopWorld, browser: Browser
) -> None:
    await browser.open("/tasks/held/edit")
    first = browser.page
    await browser.open("/tasks/held")
    await browser.open("/act/compensate_task/held?back=/tasks/held")
    await browser.send("/act/compensate_task/held", field_reason="sold out")
    browser.page = first
    page = await browser.send("/tasks/held/edit", **{"typed/item": "book", "reason": "mine"})
    assert browser.answer.status_code == 409
    assert "The task has changed since this form was opened: it is compensat" in page.text
    assert page.find_form("/tasks/held/edit").fields["typed/item"] == "book"
    assert await count_acts(world, "held") == 1


async def test_of_two_forms_that_pass_the_check_in_the_same_moment_one_is_refused_by_the_store(
    world: ShopWorld, browser: Browser
) -> None:
    forms = []
    for _ in range(2):
        await browser.open("/tasks/held/edit")
        forms.append(browser.page.find_form("/tasks/held/edit"))
    headers = {"content-type": "application/x-www-form-urlencoded"}
    sent = [
        world.http.post(
            form.action, data={**form.fields, "typed/item": f"book {number}", "reason": "mine"}, headers=headers
        )
        for number, form in enumerate(forms)
    ]
    answers = sorted(one.status_code for one in await asyncio.gather(*sent))
    assert answers == [303, 409]
    assert await count_acts(world, "held") == 1


async def test_a_double_click_sends_a_signal_once() -> None:
    app = signal_shop.open_app("memory://")
    async with open_server(app) as world:
        await app.submit(signal_shop.sell(), task_id="waits")
        browser = await sign_in(world)
        await browser.open("/tasks/waits/signals")
        page = await browser.follow("send approved")
        form = page.find_form("/tasks/waits/signals/approved")
        assert set(form.fields) >= {"typed/by", "typed/note", "once"}
        for _ in range(2):
            await browser.send("/tasks/waits/signals/approved", **{"typed/by": "ana"})
            browser.page.forms = [form]
        listed = (await world.http.get("/tasks/waits/signals")).text
        assert listed.count(">approved<") >= 1
        shown = await world.http.get("/v1/tasks/waits/signals", headers={"Authorization": f"Bearer {TOKENS['admin']}"})
        assert [one["value"] for one in shown.json()["signals"]] == [{"by": "ana", "note": ""}]


async def test_a_signal_that_the_code_does_not_take_and_one_of_another_type_are_refused() -> None:
    app = signal_shop.open_app("memory://")
    async with open_server(app) as world:
        await app.submit(signal_shop.sell(), task_id="waits")
        browser = await sign_in(world)
        page = await browser.open("/tasks/waits/signals/other")
        assert "takes no signal" in page.text
        await browser.open("/tasks/waits/signals/paid")
        page = await browser.send("/tasks/waits/signals/paid", typed="much")
        assert browser.answer.status_code == 422
        assert "'much' is not a whole number" in page.text


async def test_a_form_says_that_the_recorded_arguments_are_withheld() -> None:
    async with open_shop(running=True) as world:
        await world.sell()
        answer = await world.http.get("/v1/tasks/held/inputs", headers={"Authorization": f"Bearer {TOKENS['read']}"})
        (found,) = answer.json()["inputs"]
        assert "recorded" not in found
        assert found["form"]["required"] == ["item"]


async def test_without_the_code_the_form_is_json_with_the_recorded_value(world: ShopWorld) -> None:
    (whole,) = (await world.http.get("/v1/tasks/held/inputs")).json()["inputs"]
    assert whole["is_known"]
    world.app.session.codes.pop("step:audit")  # as in a process of a release without it
    browser = await sign_in(world)
    page = await browser.open("/tasks/held/edit")
    assert "The code that says the types is not in this process" in page.text
    assert json.loads(page.find_form("/tasks/held/edit").fields["typed"]) == {"item": "lamp"}


async def test_a_token_that_may_only_read_gets_no_form(world: ShopWorld) -> None:
    browser = await sign_in(world, "read")
    for path in ("/tasks/held/edit", "/tasks/held/answer?step=audit", "/tasks/sleeping/signals/x"):
        await browser.open(path)
        assert browser.answer.status_code == 403
