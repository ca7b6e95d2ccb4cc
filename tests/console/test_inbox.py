"""The inbox: questions to operators, and the form that answers one."""

from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlencode

import pytest
from console_pages import Browser
from question_shop import name_it, open_app, pay_out
from server_world import TOKENS, ServerWorld, open_server

from arriero import ask, workflow

ADMIN = {"Authorization": f"Bearer {TOKENS['admin']}"}


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ServerWorld]:
    monkeypatch.setenv("ARRIERO_APPROVALS_CANCEL", "2")
    app = open_app("memory://")
    async with open_server(app) as world, app.running():
        for task_id, work in (("small", pay_out(90)), ("large", pay_out(10_000)), ("named", name_it())):
            await app.submit(work, task_id=task_id, reply_to="desk")
            async for status in app.replies("desk"):
                if status.kind == "asked":
                    break
        yield world


@pytest.fixture
async def browser(world: ServerWorld) -> Browser:
    browser = Browser(world.http)
    await browser.sign_in(TOKENS["admin"], "/inbox")
    return browser


async def find_number(world: ServerWorld, task_id: str) -> int:
    found = (await world.http.get("/v1/questions", headers=ADMIN)).json()["questions"]
    return next(one["number"] for one in found if one["task_id"] == task_id)


async def load_result(world: ServerWorld, task_id: str) -> Any:
    return (await world.http.get(f"/v1/tasks/{task_id}/result?wait=30", headers=ADMIN)).json()["output"]


async def test_open_questions_say_who_is_asked_by_which_task_and_until_when(browser: Browser) -> None:
    text = browser.page.text
    assert "Pay out 90 EUR? Asked of finance by small of pay_out at" in text
    assert "Its name? Asked of legal by named of name_it at" in text
    assert "; until " in text
    assert "Pay out 10000 EUR? needs 2 operators" in text
    await browser.follow("legal")
    assert "Its name?" in browser.page.text
    assert "Pay out" not in browser.page.text


async def test_a_question_is_answered_by_a_form_that_is_made_from_its_schema(
    world: ServerWorld, browser: Browser
) -> None:
    number = await find_number(world, "small")
    await browser.open(f"/inbox/{number}")
    form = browser.page.find_form("/inbox/")
    assert "answer/note" in form.fields
    body = urlencode({**form.fields, "answer/approved": "true", "answer/note": "it is fine", "reason": "checked"})
    headers = {"content-type": "application/x-www-form-urlencoded", "accept": "text/html"}
    for _ in range(2):  # a double click
        sent = await world.http.post(form.action, content=body, headers=headers)
        assert (sent.status_code, sent.headers["location"]) == (303, "/inbox")
    assert await load_result(world, "small") == "True it is fine"
    page = await browser.open("/inbox")
    assert "Answered: question:finance of task small." in page.text
    assert "Pay out 90 EUR?" not in page.text
    entries = (await world.http.get("/v1/tasks/small/history?limit=200", headers=ADMIN)).json()["entries"]
    acts = [one for entry in entries for one in entry["events"] if one["type"] == "operator.action"]
    assert [(one["by"], one["reason"]) for one in acts] == [("caller-admin", "checked")]


async def test_an_answer_without_a_reason_is_refused_and_the_form_keeps_it(
    world: ServerWorld, browser: Browser
) -> None:
    await browser.open(f"/inbox/{await find_number(world, 'named')}")
    await browser.send("/inbox/", answer="<b>Lina</b>")
    assert browser.answer.status_code == 422
    assert "reason is ''" in browser.page.text
    assert browser.page.find_form("/inbox/").fields["answer"] == "<b>Lina</b>"
    assert "<b>Lina" not in browser.answer.text
    await browser.send("/inbox/", reason="so it was baptized")
    assert await load_result(world, "named") == "<b>Lina</b>"


async def test_an_answer_that_needs_two_operators_is_kept_as_an_approval(world: ServerWorld, browser: Browser) -> None:
    number = await find_number(world, "large")
    form = (await browser.open(f"/inbox/{number}")).find_form("/inbox/")
    headers = {"content-type": "application/x-www-form-urlencoded", "accept": "text/html"}
    answer = {"answer/approved": "true", "reason": "the limit allows it"}
    await world.http.post(form.action, content=urlencode({**form.fields, **answer}), headers=headers)
    page = await browser.open("/inbox")
    assert "Your approval is kept: task 'large': answer needs 2 operators; approved by caller-admin" in page.text
    assert "caller-admin approved it at" in page.text
    await browser.send("/sign-out")
    await browser.sign_in(TOKENS["operate"], "/inbox")
    assert browser.answer.status_code == 403  # to operate is not to read


async def test_a_question_that_was_answered_meanwhile_says_so(world: ServerWorld, browser: Browser) -> None:
    number = await find_number(world, "named")
    await browser.open(f"/inbox/{number}")
    body = {"step": "question:legal", "result": "Lina", "reason": "by another"}
    (await world.http.post("/v1/tasks/named:answer", json=body, headers=ADMIN)).raise_for_status()
    page = await browser.send("/inbox/", answer="Paul", reason="late")
    assert browser.answer.status_code == 404
    assert f"question {number} is not open: it was answered, or its task has moved on" in page.text
    assert await load_result(world, "named") == "Lina"


async def test_who_may_only_read_sees_questions_and_answers_none(world: ServerWorld, browser: Browser) -> None:
    number = await find_number(world, "named")
    await browser.send("/sign-out")
    page = await browser.sign_in(TOKENS["read"], "/inbox")
    assert "Its name?" in page.text
    assert "answer" not in page.links
    await browser.open(f"/inbox/{number}")
    assert browser.answer.status_code == 403


async def test_a_hostile_question_is_shown_as_text() -> None:
    @workflow
    async def trick() -> str:
        return await ask("<script>alert(1)</script>\n\u202egnirts", str, of="<i>&\u202e")

    from arriero import App

    app = App("shop", workflows=[trick], store="memory://")
    async with open_server(app) as world, app.running():
        await app.submit(trick(), task_id="trick", reply_to="desk")
        async for status in app.replies("desk"):
            if status.kind == "asked":
                break
        browser = Browser(world.http)
        page = await browser.sign_in(TOKENS["admin"], "/inbox")
        assert "<script>alert(1)</script>" in page.text
        for text in ("<script>alert", "<i>", "\u202e"):
            assert text not in browser.answer.text
        await browser.follow("answer")
        for text in ("<script>alert", "<i>", "\u202e"):
            assert text not in browser.answer.text


async def test_an_empty_inbox_says_how_a_question_comes(world: ServerWorld) -> None:
    async with open_server() as empty:
        page = await Browser(empty.http).sign_in(TOKENS["read"], "/inbox")
        assert "No question is open. Workflows ask one with ask() ." in page.text
        page = await Browser(empty.http).open("/inbox?of=nobody")
        assert "No question to nobody is open." in page.text


async def test_a_question_is_found_by_its_number_over_http(world: ServerWorld, browser: Browser) -> None:
    number = await find_number(world, "large")
    found = await world.http.get(f"/v1/questions/{number}", headers=ADMIN)
    assert (found.json()["task_id"], found.json()["operators"]) == ("large", 2)
    missing = await world.http.get("/v1/questions/999", headers=ADMIN)
    assert (missing.status_code, missing.json()["code"]) == (404, "unknown-name")


async def test_a_verb_that_waits_for_a_second_operator_is_in_the_inbox_until_it_is_carried_out(
    world: ServerWorld, browser: Browser
) -> None:
    page = await browser.open("/inbox")
    assert "needs another operator" not in page.text
    asked = {"reason": "asked by the customer"}
    sent = await world.http.post("/v1/tasks/small:cancel", json=asked, headers=ADMIN)
    assert sent.json()["code"] == "approval-needed"
    page = await browser.open("/inbox")
    assert "Cancel small needs another operator" in page.text
    assert "caller-admin approved it at" in page.text
    assert page.links["cancel"].startswith("/act/cancel_task/small")
    second = {"Authorization": f"Bearer {TOKENS['operate']}"}
    assert (await world.http.post("/v1/tasks/small:cancel", json=asked, headers=second)).status_code == 200
    page = await browser.open("/inbox")
    assert "needs another operator" not in page.text
