"""Arguments that people edited, what they gave by hand and late answers, as `task show`, `explain` and `history` tell them."""

import asyncio
import json
import re
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from cli_calls import Call

from arriero import Agent, App, Attempt, Permanent, Retry, Supervision, TaskFailed, workflow

STORE = "--store", "sqlite:///bank.db"
bank = Agent("bank")


@bank.step(retry=Retry(tries=1), supervision=Supervision(attempts=1, then="hold"))
async def charge(attempt: Attempt, card: str) -> str:
    if card != "4333":
        raise Permanent("card declined", code="declined")
    return f"receipt {card}"


@bank.step(complete_within=1, retry=Retry(tries=1), supervision=Supervision(attempts=4))
async def slow(attempt: Attempt, card: str) -> str:
    if attempt.number == 1:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(60)
        await asyncio.sleep(0.2)  # it answers well after its deadline, also by a clock that is a little behind
    return f"receipt {card}, attempt {attempt.number}"


@workflow
async def pay(card: str) -> str:
    return await charge(card)


@workflow
async def pay_slowly(card: str) -> str:
    return await slow(card)


def app() -> App:
    return App("bank", agents=[bank], workflows=[pay, pay_slowly], store=STORE[1])


async def failed(task: Any) -> None:
    with suppress(TaskFailed):
        await task.result()


@pytest.fixture
def paid(call: Call) -> Call:
    """A card that was edited twice, once in vain; and a charge whose first attempt answered late."""

    async def pay_all() -> None:
        async with app().running() as running:
            task = await running.submit(pay("4111"), task_id="order-1")
            await failed(task)
            await task.resubmit(by="ann", reason="wrong card", arguments={"card": "4222"})
            await failed(task)
            await task.resubmit(by="bob", reason="that one is blocked", arguments={"card": "4333"})
            assert await task.result() == "receipt 4333"
            slow_one = await running.submit(pay_slowly("5000"), task_id="order-2")
            assert await slow_one.result() == "receipt 5000, attempt 2"

    asyncio.run(pay_all())
    return call


@pytest.mark.parametrize("command", ["show", "explain"])
def test_a_card_that_was_edited_twice_is_told_with_all_values_who_when_and_why(paid: Call, command: str) -> None:
    text = paid("task", command, "order-1", *STORE).stdout
    told = text[text.index("edited arguments of step charge:") :].splitlines()
    assert told[1] == '  {"card":"4111"}'
    assert told[2] == "     asked by the code"
    assert told[3].startswith("     sent 20")
    assert "from attempt 1 on, key " in told[3]
    assert told[4] == '  -> {"card":"4222"}'
    assert told[5].endswith('Z by ann: "wrong card"')
    assert "from attempt 2 on, key " in told[6]
    assert told[7] == '  -> {"card":"4333"}'
    assert told[8].endswith('Z by bob: "that one is blocked"')
    assert "from attempt 3 on, key " in told[9]


@pytest.mark.parametrize("command", ["show", "explain"])
def test_programs_read_every_life_of_the_arguments(paid: Call, command: str) -> None:
    record = json.loads(paid("task", command, "order-1", "--json", *STORE).stdout)["record"]
    lives = [(one["step"], one["arguments"], one["edited_by"], one["incarnation"]) for one in record["versions"]]
    assert lives == [
        ("charge", {"card": "4111"}, "", 1),
        ("charge", {"card": "4222"}, "ann", 2),
        ("charge", {"card": "4333"}, "bob", 3),
    ]
    assert [one["sent_attempt"] for one in record["versions"]] == [1, 2, 3]
    assert len({one["idempotency_key"] for one in record["versions"]}) == 3


def test_a_late_answer_is_told_with_its_value_by_show_and_explain_and_without_it_by_history(paid: Call) -> None:
    for command in ("show", "explain"):
        text = paid("task", command, "order-2", *STORE).stdout
        told = text[text.index("late answers:") :].splitlines()
        assert told[1].startswith("  step slow: attempt 1 answered at 20")
        assert told[1].endswith(" s late: kept, not counted")
        assert told[2] == '    "receipt 5000, attempt 1"'
    history = paid("history", "order-2", *STORE).stdout
    assert "step slow: attempt 1 answered at 20" in history
    assert "late: kept, not counted" in history
    (answer,) = json.loads(paid("task", "show", "order-2", "--json", *STORE).stdout)["record"]["late_answers"]
    assert (answer["answer"], answer["attempt"], answer["outcome"]) == ("receipt 5000, attempt 1", 1, "succeeded")
    assert answer["late_seconds"] >= 0


def test_what_was_replaced_is_in_no_export_and_the_export_is_clean(paid: Call, tmp_path: Path) -> None:
    exported = paid("export", *STORE).stdout
    assert not re.search(r"card\W{1,6}4111", exported)  # four digits alone stand in hashes, too
    assert "receipt 5000" not in exported
    assert '"by":"ann"' in exported
    (tmp_path / "export.jsonl").write_text(exported)
    assert paid("check", "export.jsonl").stdout.startswith("clean: ")


def test_a_result_given_by_hand_and_an_output_that_was_undone_are_told(call: Call) -> None:
    async def by_hand() -> None:
        async with app().running() as running:
            task = await running.submit(pay("4111"), task_id="order-1")
            await failed(task)
            await task.answer(by="ann", reason="paid in cash", step="charge", result="receipt 7")
            await task.resubmit(by="ann", reason="go on")
            assert await task.result() == "receipt 7"
            await task.compensate(by="bob", reason="sent back")
            await failed(task)

    asyncio.run(by_hand())
    text = call("task", "show", "order-1", *STORE).stdout
    told = text[text.index("by hand:") :].splitlines()
    assert told[1].startswith("  the result of step charge, given 20")
    assert told[1].endswith('Z by ann: "paid in cash"')
    assert told[2] == '    "receipt 7"'
    assert told[3].startswith("  the task's output, until it was undone 20")
    assert told[4] == '    "receipt 7"'


def test_a_purge_leaves_nothing_of_them(paid: Call) -> None:
    assert b"4222" in _on_disk()
    with closing(sqlite3.connect("bank.db", isolation_level=None)) as connection:
        connection.execute("UPDATE arriero_alert SET next_at = NULL")  # every sink knows
    Path("arriero.toml").write_text("[purge]\nidempotency_keep_seconds = 0.001\n")
    for task_id in ("order-1", "order-2"):
        purged = paid("purge", "--task", task_id, "--yes", *STORE)
        assert purged.exit_code == 0, purged.output
    left = _on_disk()
    for value in (b"4111", b"4222", b"4333", b"wrong card", b"receipt 5000"):
        assert value not in left


def _on_disk() -> bytes:
    return b"".join(file.read_bytes() for file in Path().glob("bank.db*") if file.is_file())
