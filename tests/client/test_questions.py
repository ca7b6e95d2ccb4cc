"""Questions to operators through the public API, on a virtual clock."""

import asyncio
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any

import msgspec
import pytest
from pydantic import BaseModel

import arriero
from arriero import (
    Agent,
    App,
    ApprovalNeeded,
    CallbackRefused,
    InvalidInput,
    TaskCompensated,
    TaskHeld,
    VerbRefused,
    testing,
    workflow,
)
from arriero.client.app_assignment import Assignment, assign
from arriero.client.questions import OpenQuestion
from arriero.testing import World

bank = Agent("bank")
undone: list[int] = []
ANA = {"by": "ana", "reason": "seen the invoice"}
BO = {"by": "bo", "reason": "so have I"}


@dataclass
class Decision:
    approved: bool
    note: str = ""


class Terms(BaseModel):
    days: int


@bank.step
async def charge(number: int) -> int:
    return number


@charge.compensation
async def refund(number: int) -> None:
    undone.append(number)


@workflow
async def pay_out(euros: int) -> str:
    await charge(euros)
    decision = await arriero.ask(f"Pay out {euros} EUR?", Decision, of="finance", within=timedelta(days=2))
    return f"{decision.approved} {decision.note}"


@workflow
async def pay_out_or_not(euros: int) -> bool:
    return await arriero.ask(f"Pay out {euros} EUR?", bool, within=60, otherwise=False)


@workflow
async def pay_out_by_two(euros: int) -> bool:
    return await arriero.ask(f"Pay out {euros} EUR?", bool, of="finance", operators=2)


@workflow
async def asks_two(euros: int) -> list[Any]:
    asked = (arriero.ask("First?", int), arriero.ask("Second?", Terms, of="legal"), charge(euros))
    first, second, _ = await asyncio.gather(*asked)
    return [first, second.days]


@workflow
async def stops_asking(euros: int) -> str:
    waiting = asyncio.ensure_future(arriero.ask("First?", int))
    await arriero.sleep(5)
    waiting.cancel()
    return f"{await arriero.ask('Second?', str)}"


@workflow
async def asks_badly(what: str) -> Any:
    match what:
        case "text":
            return await arriero.ask("", int)
        case "of":
            return await arriero.ask("Yes?", int, of="a#b")
        case "operators":
            return await arriero.ask("Yes?", int, operators=0)
        case "otherwise":
            return await arriero.ask("Yes?", int, within=1, otherwise="no")  # type: ignore[arg-type]
        case "form":
            return await arriero.ask("Yes?", object)
        case _:
            return await arriero.ask("Yes?", int, within=-1)


@dataclass
class Marked:
    """It reads what it wrote as another value."""

    text: str

    def __post_init__(self) -> None:
        self.text = self.text.removesuffix("!")
        if len(self.text) > 4:
            raise ValueError("at most four letters")


@workflow
async def asks_for_marked(euros: int) -> str:
    return (await arriero.ask("Its name?", Marked)).text


app = App(
    "shop",
    agents=[bank],
    workflows=[asks_for_marked, pay_out, pay_out_or_not, pay_out_by_two, asks_two, stops_asking, asks_badly],
)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    undone.clear()
    async with testing.running(app) as opened:
        yield opened


async def open_questions(world: World, of: str | None = None) -> list[OpenQuestion]:
    return [question async for question in world.app.questions(of=of)]


async def wait_for_questions(world: World, count: int = 1, seconds: float = 1) -> list[OpenQuestion]:
    await world.clock.advance(seconds)
    found = await open_questions(world)
    assert len(found) == count
    return found


async def test_the_answer_of_an_operator_is_what_the_code_gets(world: World) -> None:
    task = await world.app.submit(pay_out(9_000), task_id="1001")
    (question,) = await wait_for_questions(world)
    assert (question.task_id, question.name, question.of) == ("1001", "question:finance", "finance")
    assert (question.question, question.operators) == ("Pay out 9000 EUR?", 1)
    assert question.until == question.since + timedelta(days=2)
    assert b'"approved"' in bytes(question.form)
    await task.answer(step=question.name, result=Decision(True, "ok"), **ANA)
    assert await task.result() == "True ok"
    assert await open_questions(world) == []


async def test_without_an_answer_in_time_the_code_gets_the_other_one(world: World) -> None:
    assert await world.app.execute(pay_out_or_not(1)) is False


async def test_without_an_answer_in_time_and_without_another_one_the_task_is_undone(world: World) -> None:
    task = await world.app.submit(pay_out(7))
    with pytest.raises(TaskCompensated, match="question to finance was not answered within 2 d"):
        await task.result()
    assert undone == [7]
    assert await open_questions(world) == []


async def test_an_answer_after_the_time_is_refused(world: World) -> None:
    task = await world.app.submit(pay_out_or_not(1))
    await task.result()
    with pytest.raises(VerbRefused):
        await task.answer(step="question:operators", result=True, **ANA)


@pytest.mark.parametrize("result", [{"approved": "yes"}, 1, None, {"note": "x"}, [True]])
async def test_an_answer_that_does_not_fit_the_form_is_refused_and_changes_nothing(world: World, result: Any) -> None:
    task = await world.app.submit(pay_out(1))
    before = await wait_for_questions(world)
    with pytest.raises(InvalidInput, match="question to finance: .*; the answer is JSON of the form"):
        await task.answer(step="question:finance", result=result, **ANA)
    assert await open_questions(world) == before


async def test_an_answer_that_its_form_writes_as_another_value_is_refused(world: World) -> None:
    task = await world.app.submit(asks_for_marked(1))
    await wait_for_questions(world)
    with pytest.raises(InvalidInput, match="its form reads what it wrote as another value"):
        await task.answer(step="question:operators", result={"text": "abc!!"}, **ANA)
    await task.answer(step="question:operators", result={"text": "abc!"}, **ANA)
    assert await task.result() == "abc"


async def test_a_question_wants_a_result(world: World) -> None:
    task = await world.app.submit(pay_out(1))
    await wait_for_questions(world)
    with pytest.raises(InvalidInput, match="give the result of step question:finance"):
        await task.answer(step="question:finance", **ANA)
    with pytest.raises(VerbRefused, match="waits for an answer and cannot be in doubt"):
        await task.answer(step="question:finance", did_not_happen=True, **ANA)


async def test_the_second_of_two_operators_at_the_same_time_is_refused(world: World) -> None:
    task = await world.app.submit(pay_out(1))
    await wait_for_questions(world)
    answers = (
        task.answer(step="question:finance", result=Decision(True), **ANA),
        task.answer(step="question:finance", result=Decision(False), **BO),
    )
    first, second = await asyncio.gather(*answers, return_exceptions=True)
    assert first is None and isinstance(second, VerbRefused)
    assert await task.result() == "True "


async def test_a_dry_run_of_an_answer_counts_who_gave_the_same(world: World) -> None:
    task = await world.app.submit(pay_out_by_two(1), task_id="t")
    await wait_for_questions(world)
    chosen = world.app.tasks(workflow="pay_out_by_two")
    answer: dict[str, Any] = {"step": "question:finance", "result": True}
    trial = await chosen.answer(**answer, **ANA, dry_run=True)
    assert (trial.done, trial.would_count, trial.refused) == (("t",), ("t",), ())
    assert trial.changes["t"][0].startswith("would be kept as an approval by ana")
    with pytest.raises(ApprovalNeeded):
        await task.answer(**answer, **ANA)
    trial = await chosen.answer(**answer, **BO, dry_run=True)
    assert (trial.changes["t"], trial.would_count) == (("would be carried out, approved by ana",), ())
    differs = await chosen.answer(step="question:finance", result=False, **BO, dry_run=True)
    assert differs.changes["t"][0].startswith("would be kept as an approval by bo")


async def test_two_persons_give_the_same_answer_where_the_code_says_so(world: World) -> None:
    task = await world.app.submit(pay_out_by_two(1))
    (question,) = await wait_for_questions(world)
    assert question.operators == 2
    with pytest.raises(ApprovalNeeded, match="answer needs 2 operators; approved by ana"):
        await task.answer(step="question:finance", result=True, **ANA)
    with pytest.raises(ApprovalNeeded):
        await task.answer(step="question:finance", result=True, by="Ana", reason="again")
    with pytest.raises(ApprovalNeeded):
        await task.answer(step="question:finance", result=False, **BO)
    await task.answer(step="question:finance", result=True, by="cy", reason="fine")
    assert await task.result() is True


async def test_settings_that_want_two_persons_hold_for_questions_too() -> None:
    async with testing.running(app, approvals={"answer": 2}) as world:
        task = await world.app.submit(pay_out(1))
        await wait_for_questions(world)
        with pytest.raises(ApprovalNeeded):
            await task.answer(step="question:finance", result=Decision(True), **ANA)
        await task.answer(step="question:finance", result=Decision(True), **BO)
        assert await task.result() == "True "


async def test_questions_stand_side_by_side_and_are_answered_in_any_order(world: World) -> None:
    task = await world.app.submit(asks_two(3))
    first, second = await wait_for_questions(world, 2)
    assert [question.name for question in await open_questions(world, of="legal")] == [second.name]
    await task.answer(step=second.name, result={"days": 30}, **ANA)
    await task.answer(step=first.name, result=4, **ANA)
    assert await task.result() == [4, 30]


async def test_a_question_that_the_code_no_longer_waits_for_may_still_be_answered_and_changes_nothing(
    world: World,
) -> None:
    task = await world.app.submit(stops_asking(1))
    await wait_for_questions(world, 2, seconds=6)
    await task.answer(step="question:operators", result=1, **ANA)
    await task.answer(step="question:operators[#2]", result="x", **ANA)
    assert await task.result() == "x"


async def test_cancelling_a_task_ends_its_questions(world: World) -> None:
    task = await world.app.submit(pay_out(5))
    await wait_for_questions(world)
    await task.cancel(**ANA)
    with pytest.raises(TaskCompensated):
        await task.result()
    assert undone == [5] and await open_questions(world) == []
    with pytest.raises(VerbRefused):
        await task.answer(step="question:finance", result=Decision(True), **ANA)


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("text", "must have 1 to 2,000 characters"),
        ("of", "must be without '#'"),
        ("operators", "operators is 0; it must be a whole number from 1 to 10"),
        ("otherwise", "question to operators"),
        ("form", "question to operators"),
        ("within", "within"),
    ],
)
async def test_a_question_with_an_unfit_argument_holds_the_task_and_says_why(
    world: World, what: str, says: str
) -> None:
    task = await world.app.submit(asks_badly(what))
    with pytest.raises(TaskHeld, match=says):
        await task.result()


async def test_ask_outside_of_a_workflow_says_so() -> None:
    with pytest.raises(arriero.ArrieroError, match="arriero.ask works only inside a workflow"):
        await arriero.ask("Yes?", int)


@workflow(name="reworded")
async def old_words(number: int) -> bool:
    return await arriero.ask("Old words?", bool)


@workflow(name="reworded")
async def new_words(number: int) -> Annotated[int, msgspec.Meta(ge=0)]:
    return await arriero.ask("New words?", Annotated[int, msgspec.Meta(ge=0)])  # type: ignore[arg-type]


async def test_a_release_may_ask_in_other_words_and_with_another_form_while_a_task_waits(tmp_path: Any) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    async with App("shop", workflows=[old_words], store=url).running() as before:
        await before.submit(old_words(1), task_id="1", reply_to="q")
        async for status in before.replies("q"):
            if status.kind == "asked":
                assert status.data == {"of": "operators", "question": "Old words?"}
                break
    async with App("shop", workflows=[new_words], store=url).running() as after:
        task = after.task("1")
        with pytest.raises(InvalidInput, match="Expected `int`"):
            await task.answer(step="question:operators", result=True, **ANA)
        await task.answer(step="question:operators", result=7, **ANA)
        assert await task.result() == 7


async def test_a_question_of_an_app_that_was_renamed_is_answered_under_its_new_name(tmp_path: Any) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    async with App("shop", workflows=[old_words], store=url).running() as before:
        await before.submit(old_words(1), task_id="1", reply_to="q")
        async for status in before.replies("q"):
            if status.kind == "asked":
                break
    async with App("operator", store=url) as on:
        await assign(on.session, Assignment(app="market", from_app="shop"), **ANA)
    async with App("shop", workflows=[old_words], store=url) as before:
        with pytest.raises(InvalidInput, match="workflow 'reworded' of App 'market' is not in this App"):
            await before.task("1").answer(step="question:operators", result=True, **ANA)
    async with App("market", workflows=[old_words], store=url).running() as after:
        assert [(one.app, one.task_id) async for one in after.questions()] == [("market", "1")]
        await after.task("1").answer(step="question:operators", result=True, **ANA)
        assert await after.task("1").result() is True


code_ran_in: list[int] = []


@workflow
async def notes_its_thread(number: int) -> int:
    code_ran_in.append(threading.get_ident())
    callback = arriero.callback(int)
    return await arriero.ask("How many?", int) + await callback


async def test_the_code_that_checks_an_answer_or_a_callback_runs_beside_the_event_loop(tmp_path: Any) -> None:
    async with App("shop", workflows=[notes_its_thread], store=f"sqlite:///{tmp_path}/store.db").running() as app:
        task = await app.submit(notes_its_thread(1), task_id="1", reply_to="q")
        async for status in app.replies("q"):
            if status.kind == "asked":
                break
        code_ran_in.clear()
        with pytest.raises(InvalidInput, match="Expected `int`"):
            await task.answer(step="question:operators", result="7", **ANA)
        with pytest.raises(CallbackRefused, match="Expected `int`"):
            await task.complete_callback("callback", "7", by="ana")
        assert len(code_ran_in) == 2
        assert threading.get_ident() not in code_ran_in


async def test_an_answer_where_the_code_is_not_here_is_refused_by_name(world: World) -> None:
    task = await world.app.submit(pay_out(1))
    await wait_for_questions(world)
    codes = dict(world.app.session.codes)
    world.app.session.codes = {}  # type: ignore[misc]
    try:
        with pytest.raises(InvalidInput, match="workflow 'pay_out' is not in this App"):
            await task.answer(step="question:finance", result=True, **ANA)
    finally:
        world.app.session.codes = codes  # type: ignore[misc]
