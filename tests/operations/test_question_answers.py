"""Questions by the command line and by HTTP: how each lists them, and what each refuses by name with nothing changed."""

import asyncio
import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from json_senders import call
from question_shop import open_app, plant
from server_world import open_server

from arriero.cli.main import commands

APP = "question_shop:app"
WHO = ["--by", "ana", "--reason", "seen the invoice"]


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'questions.db'}"


async def list_by_command(url: str, *options: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (await call(url, "question", "list", "--json", *options)).stdout.splitlines()]


BAD = [
    # task, step, result; then the code of the problem, the exit code, and a part of what both say
    ("small", "question:finance", '"yes"', "invalid-request", 2, "question to finance: Expected `object`, got `str`"),
    ("small", "question:finance", '{"approved": 1}', "invalid-request", 2, "Expected `bool`, got `int` - at `$.approved`"),
    ("small", "question:finance", "{}", "invalid-request", 2, "missing required field `approved`"),
    ("small", "question:legal", "true", "invalid-request", 2, "has no step 'question:legal'; it has question:finance"),
    ("nobody", "question:finance", "true", "task-unknown", 4, "no task 'nobody'"),
]  # fmt: skip


async def test_unfit_answers_are_refused_alike_by_the_command_line_and_by_http_and_change_nothing(url: str) -> None:
    await plant(url)
    async with open_server(open_app(url)) as world:
        before = await list_by_command(url)
        for task, step, result, code, exit_code, says in BAD:
            typed = await call(url, "task", "answer", task, step, "--result", result, *WHO, "--app", APP, "--json")
            document = json.loads(typed.stderr.splitlines()[0])
            assert (document["code"], typed.exit_code) == (code, exit_code), (task, typed.output)
            assert says in document["detail"], (task, document)
            body = {"reason": "seen", "step": step, "result": json.loads(result)}
            answered = (await world.http.post(f"/v1/tasks/{task}:answer", json=body)).json()
            assert answered["code"] == code, (task, answered)
            assert says in answered["detail"], (task, answered)
        assert await list_by_command(url) == before


async def test_a_question_is_listed_alike_and_answered_once(url: str) -> None:
    await plant(url)
    async with open_server(open_app(url)) as world:
        listed = (await world.http.get("/v1/questions?of=finance")).json()
        assert listed["questions"] == await list_by_command(url, "--of", "finance")
        assert [one["task_id"] for one in listed["questions"]] == ["small", "large"]
        page = (await world.http.get("/v1/questions?limit=1")).json()
        rest = (await world.http.get(f"/v1/questions?limit=5&cursor={page['next']}")).json()
        assert [one["task_id"] for one in rest["questions"]] == ["large", "named"]
        printed = await call(url, "question", "list")
        assert "Pay out 90 EUR?" in printed.stdout
        assert "answer one: arriero task answer small question:finance --result JSON" in printed.stderr
        given = ["--result", '{"approved": true}', *WHO, "--app", APP]
        assert (await call(url, "task", "answer", "small", "finance", *given)).exit_code == 0
        again = await call(url, "task", "answer", "small", "question:finance", *given)
        assert again.exit_code == 3
        assert "question:finance was answered before" in again.stderr
        body = {"reason": "seen", "step": "question:legal", "result": "lamp"}
        assert (await world.http.post("/v1/tasks/named:answer", json=body)).status_code == 200
        assert [one["task_id"] for one in await list_by_command(url)] == ["large"]
    none = await call(url, "question", "list", "--of", "nobody")
    assert none.stderr == "No open questions for --of nobody.\n"


async def test_two_operators_answer_on_different_interfaces_where_the_question_wants_two(url: str) -> None:
    await plant(url)
    async with open_server(open_app(url)) as world:
        given = ["--result", '{"approved": true}', *WHO, "--app", APP, "--json"]
        typed = await call(url, "task", "answer", "large", "finance", *given)
        document = json.loads(typed.stderr.splitlines()[0])
        assert (document["code"], typed.exit_code) == ("approval-needed", 3)
        body = {"reason": "seen", "step": "question:finance", "result": {"approved": False}}
        refused = await world.http.post("/v1/tasks/large:answer", json=body)
        assert refused.json()["code"] == "approval-needed"
        assert [one["task_id"] for one in await list_by_command(url)] == ["small", "large", "named"]
        done = await world.http.post("/v1/tasks/large:answer", json={**body, "result": {"approved": True, "note": ""}})
        assert done.status_code == 200, done.text
        assert [one["task_id"] for one in await list_by_command(url)] == ["small", "named"]


async def test_the_command_that_is_listed_answers_a_task_whose_id_begins_with_a_dash(url: str) -> None:
    await plant(url, named="-n")
    (listed,) = await list_by_command(url, "--of", "legal")
    _, *typed = shlex.split(listed["command"].replace("JSON", "'\"lamp\"'").replace("TEXT", "seen"))
    answered = await asyncio.to_thread(
        CliRunner().invoke, commands, typed, env={"ARRIERO_STORE": url, "ARRIERO_APP": APP}
    )
    assert answered.exit_code == 0, answered.output
    assert await list_by_command(url, "--of", "legal") == []


async def test_explain_and_the_alert_say_what_is_asked_and_what_to_type(url: str) -> None:
    await plant(url)
    said = (await call(url, "task", "explain", "small")).stdout
    assert "it asks finance, until" in said
    assert (
        '"Pay out 90 EUR?"; `arriero task answer small question:finance --result JSON --reason TEXT` answers it' in said
    )
    shown = (await call(url, "task", "show", "small")).stdout
    assert "question finance" in shown
    alerts = (await call(url, "alert", "list")).stdout
    assert "Pay out 90 EUR?" in alerts and "question:finance" in alerts
    by_cause = (await call(url, "alert", "list", "--by-cause")).stdout
    assert "next: arriero question list --of finance" in by_cause
    doctor = await call(url, "doctor", "--verbose")
    assert "3 questions to operators, none late" in doctor.stdout
    history = (await call(url, "history", "small")).stdout
    assert "it waits for question finance, until" in history
