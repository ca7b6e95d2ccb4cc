"""`arriero task explain`."""

import asyncio
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from cli_calls import APP, Call, Run, json_lines, order

from arriero.errors import TaskFailed
from arriero.text.escaping import escape_text


def explained(call: Call, task_id: str, *options: str) -> dict[str, list[dict[str, str]]]:
    found: dict[str, list[dict[str, str]]] = json.loads(call("task", "explain", task_id, "--json", *options).stdout)
    return found


def commands_of(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.startswith("    arriero ")]


def test_a_task_that_failed_to_be_undone_names_what_is_open_and_both_ways_out(sold: Call) -> None:
    told = sold("task", "explain", "unrefundable")
    assert (told.exit_code, told.stderr) == (0, "")
    lines = told.stdout.splitlines()
    assert lines[0].startswith("task unrefundable (number 3) of workflow fulfil: held, submitted ")
    assert "- the undo of charge failed (permanent: the bank says no [closed])" in lines
    assert commands_of(told.stdout) == [
        "arriero task resubmit unrefundable --reason TEXT",
        "arriero task answer unrefundable undo:charge --reason TEXT",
    ]
    assert "compensate would be refused" in told.stdout


def test_a_sleeping_task_tells_until_when_and_that_no_process_is_alive(sold: Call) -> None:
    told = sold("task", "explain", "later").stdout
    assert "- it sleeps until " in told
    assert "no process is alive at all: start one (arriero run MODULE:APP)" in told


def test_ended_tasks_tell_what_alone_would_move_them(sold: Call) -> None:
    assert commands_of(sold("task", "explain", "processed").stdout) == [
        "arriero task compensate processed --reason TEXT"
    ]
    assert commands_of(sold("task", "explain", "compensated").stdout)[0] == (
        "arriero task resubmit compensated --reason TEXT"
    )


def test_a_reason_of_two_lines_is_one_line_here(sold: Call) -> None:
    assert "permanent: out of stock [out_of_stock]" in sold("history", "compensated").stdout
    assert ": out of stock;" in sold("task", "explain", "compensated").stdout


def test_as_json_it_is_one_value_with_times_and_words_for_programs(sold: Call) -> None:
    found = explained(sold, "unrefundable")
    assert [reason["kind"] for reason in found["reasons"]][:2] == ["held", "open_compensation"]
    assert found["reasons"][0]["since"].startswith("20")
    assert {move["verb"] for move in found["verbs"]} == {"resubmit", "answer", "compensate"}
    assert [move["verb"] for move in found["verbs"] if "refused" in move] == ["compensate"]


def test_its_commands_work_as_they_are_typed(sold: Call) -> None:
    for verb in ("resubmit", "answer"):
        command = next(move["command"] for move in explained(sold, "unrefundable")["verbs"] if move["verb"] == verb)
        words = ["the bank knows" if word == "TEXT" else word for word in shlex.split(command)]
        done = sold(*words[1:], "--dry-run")
        assert done.exit_code == 0, done.stderr


def test_an_id_that_a_shell_or_a_command_line_would_misread_is_quoted(call: Call, shop: Path) -> None:
    for task_id in ("--paused", "a b'c", "$(reboot)"):
        assert call("submit", APP, "later", "--arguments", order("x"), "--task-id", task_id).exit_code == 0
        told = call("task", "explain", "--store", "sqlite:///arriero.db", "--", task_id).stdout
        (command,) = [line for line in commands_of(told) if " pause " in line]
        words = ["because" if word == "TEXT" else word for word in shlex.split(command)]
        assert words[-1] == task_id or task_id in words
        done = call(*words[1:])
        assert done.exit_code == 0, (command, done.stderr)


def test_a_paused_task_tells_who_paused_it_and_why(sold: Call) -> None:
    paused = sold("task", "pause", "later", "--by", "ana", "--reason", "the bank\x1b[2J is closed")
    assert paused.exit_code == 0, paused.stderr
    told = sold("task", "explain", "later").stdout
    assert 'by ana: "the bank\\x1b[2J is closed"; nothing new begins until it is resumed' in told
    assert "what operators did:" in told
    assert "\x1b" not in told
    assert any(" resume later " in command for command in commands_of(told))
    assert explained(sold, "later")["people"][0]["by"] == "ana"


def test_json_escapes_what_moves_a_cursor_and_is_the_same_value(sold: Call) -> None:
    reason = "\x7f\x9b2J\u202egnol \U000e0041"
    assert sold("task", "pause", "later", "--by", "ana", "--reason", reason).exit_code == 0
    told = sold("task", "explain", "later", "--json").stdout
    assert "\\u007f\\u009b2J\\u202egnol \\udb40\\udc41" in told
    assert escape_text(told, keep="\n") == told
    assert json.loads(told)["people"][0]["reason"] == reason


def test_a_step_that_waits_for_an_agent_nobody_hosts_names_the_agent(
    call: Call, start: Callable[..., Run], shop: Path
) -> None:
    run = start("--agents", "payments")
    run.until("ready: ")
    assert call("submit", APP, "parcel", "--arguments", order("1"), "--task-id", "parcel").exit_code == 0
    kinds: list[str] = []
    while "untaken" not in kinds:  # the process is at work on it
        kinds = [reason["kind"] for reason in explained(call, "parcel")["reasons"]]
    told = call("task", "explain", "parcel").stdout
    assert "- step pack waits untaken since " in told
    assert "no process alive hosts Agent stock; alive are: process 1 (" in told
    assert "App shopfront" in told


def test_a_running_attempt_tells_where_it_runs_and_until_when(
    call: Call, start: Callable[..., Run], shop: Path
) -> None:
    run = start()
    run.until("ready: ")
    assert call("submit", APP, "parcel", "--arguments", order("1"), "--task-id", "parcel").exit_code == 0
    run.until("packing 1")
    told = call("task", "explain", "parcel").stdout
    assert "- step pack: attempt 1 of 3 runs at process 1 (" in told
    assert " and must end by " in told
    (shop / "gate").touch()


def test_a_task_of_a_store_with_its_own_name_names_the_store_in_the_commands(
    call: Call, shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = "sqlite:///other.db"
    assert call("submit", APP, "later", "--arguments", order("1"), "--task-id", "one", "--store", url).exit_code == 0
    told = call("task", "explain", "one", "--store", url).stdout
    assert all(command.endswith(f"--store {url}") for command in commands_of(told))


def test_a_password_of_the_store_is_not_repeated_and_the_commands_work_once_the_variable_is_set(
    call: Call, shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ARRIERO_STORE", raising=False)
    url = "sqlite:///password=sesame.db"
    assert call("submit", APP, "later", "--arguments", order("1"), "--task-id", "one", "--store", url).exit_code == 0
    told = call("task", "explain", "one", "--store", url)
    as_json = call("task", "explain", "one", "--store", url, "--json")
    assert "sesame" not in told.stdout + as_json.stdout
    note = "set ARRIERO_STORE to the URL that you gave with --store; it is not shown, as a password is in it"
    assert f"({note})" in told.stdout
    assert json_lines(as_json.stdout)[0]["note"] == note
    (command,) = [line for line in commands_of(told.stdout) if " pause " in line]
    typed = as_typed(command)
    refused = subprocess.run(["bash", "-c", typed], capture_output=True, text=True, check=False)
    assert (refused.returncode, "it is empty; name a store" in refused.stderr) == (2, True)
    environment = {**os.environ, "ARRIERO_STORE": url}
    done = subprocess.run(["bash", "-c", typed], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    monkeypatch.setenv("ARRIERO_STORE", url)
    again = call("task", "explain", "one", "--store", url).stdout
    assert "it is not shown" not in again
    assert '--store "$ARRIERO_STORE"' in again


LOOK_ALIKE = (
    "order-1",
    "order\u20111",
    "\u043erder-1",
    "order-1\u200b",
    "order-1\ufe0f",
    "order-1\u3164",
    "o\u202erder-1",
)


def test_of_ids_that_print_alike_each_command_means_its_own_task(call: Call, shop: Path) -> None:
    for task_id in LOOK_ALIKE:
        assert call("submit", APP, "later", "--arguments", order("x"), "--task-id", task_id).exit_code == 0
    commands = set()
    for number, task_id in enumerate(LOOK_ALIKE):
        told = call("task", "explain", "--", task_id).stdout
        (command,) = [line for line in commands_of(told) if " pause " in line]
        assert command.isascii()
        commands.add(command)
        ran = subprocess.run(["bash", "-c", as_typed(command)], capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr
        paused = {task["id"] for task in json_lines(call("task", "list", "--paused", "--json").stdout)}
        assert paused == set(LOOK_ALIKE[: number + 1])
    assert len(commands) == len(LOOK_ALIKE)


def as_typed(command: str) -> str:
    """The command as somebody types it, with a reason, run by this interpreter."""
    return command.replace("arriero ", f"{sys.executable} -m arriero ", 1).replace("TEXT", "because")


def test_the_app_is_named_where_types_are_needed_unless_it_is_configured(
    call: Call, shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from shopfront import Order, app, buggy

    async def sell() -> None:
        async with app.running():
            task = await app.submit(buggy(Order("c")), task_id="buggy")
            try:
                await task.result()
            except TaskFailed:
                await task.compensate(by="ana", reason="a bug")
            try:
                await task.result()
            except TaskFailed as undone:
                assert undone.state == "compensated"

    asyncio.run(sell())
    edited = [c for c in commands_of(call("task", "explain", "buggy").stdout) if "--arguments" in c]
    assert edited == ["arriero task resubmit buggy --arguments JSON --reason TEXT --app MODULE:APP"]
    monkeypatch.setenv("ARRIERO_APP", APP)
    edited = [c for c in commands_of(call("task", "explain", "buggy").stdout) if "--arguments" in c]
    assert edited == ["arriero task resubmit buggy --arguments JSON --reason TEXT"]


def test_an_unknown_task_and_no_store_are_one_line_and_an_exit_code(sold: Call, shop: Path) -> None:
    refused = sold("task", "explain", "nobody")
    assert (refused.exit_code, refused.stdout) == (4, "")
    assert refused.stderr.startswith("arriero: there is no task 'nobody' in the store sqlite:////")
    nowhere = sold("task", "explain", "one", "--store", "sqlite:///nowhere.db")
    assert (nowhere.exit_code, len(nowhere.stderr.splitlines())) == (5, 1)
    assert not (shop / "nowhere.db").exists()


@pytest.fixture
def doubtful(call: Call) -> Call:
    """The command line on a store with a task whose transfer may have happened."""
    from shopfront import Order, app, wired

    async def wire() -> None:
        async with app.running():
            with suppress(TaskFailed):
                await (await app.submit(wired(Order("d")), task_id="doubtful")).result()

    asyncio.run(wire())
    return call


def test_a_step_in_doubt_names_the_key_that_its_service_is_to_be_asked_for(doubtful: Call) -> None:
    (step,) = json.loads(doubtful("task", "show", "doubtful", "--json").stdout)["steps"]
    key = step["idempotency_key"]
    remedy = (
        f"; ask payments whether it knows the idempotency key {key}, and say what it answers with `arriero task answer`"
    )
    assert remedy in doubtful("task", "explain", "doubtful").stdout
    (reason,) = [one for one in explained(doubtful, "doubtful")["reasons"] if one["kind"] == "failed_step"]
    assert reason["idempotency_key"] == key


def test_a_step_that_failed_without_doubt_tells_its_key_on_a_line_of_its_own(sold: Call) -> None:
    *_, refund = json.loads(sold("task", "show", "unrefundable", "--json").stdout)["steps"]
    assert (
        f"    idempotency key of charge: {refund['idempotency_key']}\n"
        in sold("task", "explain", "unrefundable").stdout
    )


def test_what_is_recorded_is_told_results_and_output(sold: Call) -> None:
    text = sold("task", "explain", "processed").stdout
    assert 'what is recorded:\n- result of charge: "receipt-a"\n- output: "receipt-a"\n' in text
    told = json.loads(sold("task", "explain", "processed", "--json").stdout)
    assert told["results"] == [{"ordinal": 1, "step": "charge", "result": "receipt-a"}]
    assert told["output"] == "receipt-a"
    assert json.loads(sold("task", "explain", "later", "--json").stdout)["output"] is None
