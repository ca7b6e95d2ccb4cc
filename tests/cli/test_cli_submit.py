"""`arriero submit`."""

import asyncio
import json
import sys
from pathlib import Path

import pytest
from cli_calls import APP, Call, json_lines, order


def test_a_submitted_task_is_durable_though_nothing_runs(call: Call) -> None:
    submitted = call("submit", APP, "fulfil", "--arguments", order("1"), "--task-id", "one", "--priority", "9")
    assert (submitted.exit_code, submitted.stdout) == (0, "task one is pending\n")
    assert "no Scheduler is alive on the store" in submitted.stderr
    (task,) = json_lines(call("task", "list", "--json").stdout)
    assert (task["id"], task["workflow"], task["state"], task["priority"]) == ("one", "fulfil", "pending", 9)


def test_the_same_id_is_the_same_task_and_another_body_is_refused(call: Call) -> None:
    for _ in range(2):
        assert call("submit", APP, "fulfil", "--arguments", order("1"), "--task-id", "one").exit_code == 0
    assert len(json_lines(call("task", "list", "--json").stdout)) == 1
    refused = call("submit", APP, "fulfil", "--arguments", order("2"), "--task-id", "one")
    assert refused.exit_code == 3
    assert "'one' exists with another body" in refused.stderr


def test_a_submission_says_whether_it_created_the_task(call: Call) -> None:
    same = ("submit", APP, "fulfil", "--arguments", order("1"), "--task-id", "one")
    assert [json.loads(call(*same, "--json").stdout)["created"] for _ in range(2)] == [True, False]
    assert call(*same).stdout == "task one is pending (it existed before)\n"


def test_a_known_id_with_another_key_is_refused(call: Call) -> None:
    for key in ((), ("--convoy", "customer-7")):
        task_id = "-".join(("one", *key))
        same = ("submit", APP, "fulfil", "--arguments", order("1"), "--task-id", task_id)
        for _ in range(2):
            assert call(*same, *key).exit_code == 0
        refused = call(*same, "--convoy", "never used")
        assert (refused.exit_code, refused.stdout) == (3, "")
        assert f"task '{task_id}' exists with another convoy" in refused.stderr
    assert json_lines(call("convoy", "list", "--state", "idle", "--json").stdout) == []


def test_the_app_comes_from_the_settings_where_none_is_given(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARRIERO_APP", APP)
    for name in ("fulfil", "step:charge"):
        assert call("submit", name, "--arguments", order("1")).exit_code == 0
    refused = call("submit", "nothing")
    assert (refused.exit_code, "no workflow or step 'nothing'; workflows: buggy, fulfil" in refused.stderr) == (2, True)
    monkeypatch.setenv("ARRIERO_APP", "nowhere:app")
    assert call("submit", APP, "fulfil", "--arguments", order("1")).exit_code == 0
    lost = call("submit", "fulfil")
    assert "app nowhere:app (ARRIERO_APP) cannot be loaded: there is no module 'nowhere'" in lost.stderr


def test_a_single_step_is_a_task_and_may_be_named_as_one(call: Call) -> None:
    for name in ("charge", "step:charge"):
        submitted = json.loads(call("submit", APP, name, "--arguments", order("1"), "--json").stdout)
        assert submitted["workflow"] == "step:charge"


def test_arguments_are_typed_and_the_body_is_the_one_that_python_submits(call: Call) -> None:
    call("submit", APP, "fulfil", "--arguments", '{"order": {"id": "1"}}', "--task-id", "one")
    shown = json.loads(call("task", "show", "one", "--json").stdout)
    assert shown["arguments"] == {"order": {"id": "1", "pieces": 1}}

    async def again() -> None:
        from shopfront import Order, app, fulfil

        async with app:
            await app.submit(fulfil(Order("1")), task_id="one")  # another body would be refused

    asyncio.run(again())


def test_arguments_may_come_from_standard_input(call: Call) -> None:
    submitted = call("submit", APP, "fulfil", "--arguments", "-", "--task-id", "one", given=order("1"))
    assert submitted.exit_code == 0


def test_a_delay_is_kept(call: Call) -> None:
    call("submit", APP, "jammed", "--delay", "3600", "--task-id", "one")
    shown = json.loads(call("task", "show", "one", "--json").stdout)
    assert shown["not_before"] > shown["submitted_at"]


def test_the_current_directory_comes_first_on_the_import_path(
    call: Call, shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    (shop / "colorsys.py").write_text("from shopfront import app\n")  # there is another one in the standard library
    submitted = call("submit", "colorsys:app", "jammed")
    assert submitted.exit_code == 0, submitted.stderr
