"""Questions whose time is over while their task is paused: every interface lists them as over, and none takes an answer."""

import asyncio
import json
import sqlite3
from contextlib import closing
from datetime import timedelta
from typing import Any

import httpx2
import msgspec
import pytest
from click.testing import CliRunner, Result
from core_rows import NOW
from runtime_world import Machine, eventually
from server_world import TOKENS, FixedTokens

import arriero
from arriero import App, VerbRefused, testing, workflow
from arriero.cli.main import commands
from arriero.client.questions import OpenQuestion
from arriero.explain.questions import diagnose_questions
from arriero.model import later
from arriero.model.questions import QuestionRow
from arriero.server.application import build_application

WHO: dict[str, Any] = {"by": "ana", "reason": "the books are closed"}
OVER = "the time to answer question:finance is over"
EXPLAIN = "arriero task explain order-1"


@workflow
async def pay_out(seconds: float) -> bool:
    return await arriero.ask("Pay out?", bool, of="finance", within=seconds, otherwise=False)


async def test_a_question_of_a_paused_task_whose_time_is_over_is_listed_as_over_and_takes_no_answer() -> None:
    async with testing.running(App("shop", workflows=[pay_out])) as world:
        app = world.app
        task = await app.submit(pay_out(60), task_id="order-1")
        await world.clock.advance(1)
        await task.pause(**WHO)
        (asked,) = [one async for one in app.questions()]
        assert not asked.is_over
        await world.clock.advance(timedelta(minutes=2))
        (over,) = [one async for one in app.questions()]
        assert over == msgspec.structs.replace(asked, is_over=True, command=EXPLAIN)
        http = build_application(app, FixedTokens())
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(http), base_url="http://localhost") as client:
            answer = await client.get("/v1/questions", headers={"Authorization": f"Bearer {TOKENS['read']}"})
            (listed,) = answer.json()["questions"]
            assert listed == json.loads(msgspec.json.encode(over))
        with pytest.raises(VerbRefused, match=OVER):
            await task.answer(step="question:finance", result=True, **WHO)
        trial = await app.tasks(state="processing").answer(step="question:finance", result=True, dry_run=True, **WHO)
        assert OVER in trial.refused[0][1]
        await task.resume(**WHO)
        assert await task.result() is False
        assert [one async for one in app.questions()] == []


async def test_the_command_line_and_the_doctor_say_so_too(machine: Machine) -> None:
    async def type_(*words: str) -> Result:
        return await asyncio.to_thread(CliRunner().invoke, commands, (*words, "--store", machine.url))

    async with machine.app(workflows=[pay_out]).running() as app:
        task = await app.submit(pay_out(3_600), task_id="order-1")

        async def look() -> OpenQuestion | None:
            return next(iter([one async for one in app.questions()]), None)

        await eventually(look)
        await task.pause(**WHO)
    with closing(sqlite3.connect(machine.path)) as file, file:
        file.execute("UPDATE arriero_step SET not_before = 1700000000000000")
    told = await type_("question", "list")
    assert ", over " in told.stdout
    assert f"no answer is taken any longer where the time is over; why the task waits: {EXPLAIN}" in told.stderr
    assert "answer one" not in told.stderr
    line = json.loads((await type_("question", "list", "--json")).stdout)
    assert (line["is_over"], line["command"]) == (True, EXPLAIN)
    doctor = " ".join((await type_("doctor", "--verbose")).output.split())
    assert "no answer is taken any longer to 1 question" in doctor


def test_the_doctor_tells_late_questions_from_those_whose_time_is_over() -> None:
    def question(no: int, until: float) -> QuestionRow:
        return QuestionRow(
            no, f"order-{no}", "pay_out", "shop", 1, "#1", "finance", "{}", later(NOW, -100), later(NOW, until)
        )

    late, over, fine = question(1, 1), question(2, 0), question(3, 1_000)
    found = diagnose_questions([late, over, fine], NOW, has_more=False)
    assert [(one.level, one.remedy) for one in found] == [
        ("care", "arriero question list --of finance"),
        ("information", "arriero task explain order-2"),
    ]
    (only,) = diagnose_questions([over], NOW, has_more=False)
    assert only.says.startswith(
        "no answer is taken any longer to 1 question, and the code does not know yet; the first"
    )
