"""`arriero run` as a process: ready, signals, drain, and other processes beside it."""

import json
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_calls import APP, Run, arriero, json_lines, order

pytestmark = pytest.mark.acceptance
Start = Callable[..., Run]


def history_is_clean(shop: Path) -> bool:
    export = arriero(shop, "export")
    (shop / "history.jsonl").write_text(export.stdout)
    return arriero(shop, "check", "history.jsonl").returncode == 0


def test_it_says_when_it_is_ready_and_when_it_drains(shop: Path, start: Start) -> None:
    run = start("--roles", "agents,supervisor", "--agents", "stock")
    ready = run.until("ready")
    assert ready.startswith("arriero: ready: App shopfront")
    assert f"store sqlite:///{shop / 'arriero.db'}, roles agents supervisor, Agents stock, process " in ready
    run.signal(signal.SIGTERM)
    code, output, errors = run.ended()
    assert (code, errors) == (0, "")
    assert [line.split(":")[1] for line in output.splitlines()] == [" draining after SIGTERM", " drained"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_the_attempt_end_keeps_its_result_and_exits_with_0(
    shop: Path, start: Start, number: signal.Signals
) -> None:
    run = start()
    run.until("ready")
    arriero(shop, "submit", APP, "parcel", "--arguments", order("1"), "--task-id", "one")
    run.until("packing 1")
    run.signal(number)
    run.until("draining")
    (shop / "gate").touch()
    code, output, errors = run.ended()
    assert (code, errors) == (0, "")
    assert "drained" in output
    steps = json.loads(arriero(shop, "task", "show", "one", "--json").stdout)["steps"]
    assert [(step["name"], step["state"], step["result"]) for step in steps] == [
        ("charge", "completed", "receipt-1"),
        ("pack", "completed", "packed-1"),
    ]
    again = start()
    again.until("ready")
    waited = arriero(shop, "submit", APP, "parcel", "--arguments", order("1"), "--task-id", "one", "--wait")
    assert waited.stdout == 'task one is processed: "receipt-1 packed-1" (it existed before)\n'
    again.signal(signal.SIGTERM)
    code, output, errors = again.ended()
    assert (code, errors) == (0, "")
    assert "packing" not in output  # it was done once
    assert history_is_clean(shop)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_second_signal_exits_at_once_and_loses_nothing(
    shop: Path, start: Start, number: signal.Signals, code: int
) -> None:
    run = start()
    run.until("ready")
    arriero(shop, "submit", APP, "parcel", "--arguments", order("1"), "--task-id", "one")
    run.until("packing 1")
    run.signal(signal.SIGTERM)
    run.until("draining")
    run.signal(number)
    assert run.ended()[0] == code
    again = start()
    again.until("packing 1")
    (shop / "gate").touch()
    waited = arriero(shop, "submit", APP, "parcel", "--arguments", order("1"), "--task-id", "one", "--wait")
    assert waited.stdout == 'task one is processed: "receipt-1 packed-1" (it existed before)\n'
    again.signal(signal.SIGTERM)
    assert again.ended()[0] == 0
    assert history_is_clean(shop)


def test_a_signal_before_it_is_ready_drains_too(shop: Path, start: Start) -> None:
    (shop / "slow.py").write_text(
        "import pathlib, time\nprint('importing', flush=True)\n"
        "while not pathlib.Path('gate').exists(): time.sleep(0.005)\nfrom shopfront import app\n"
    )
    run = start(target="slow:app")
    run.until("importing")
    run.signal(signal.SIGTERM)
    (shop / "gate").touch()
    code, output, errors = run.ended()
    assert (code, errors) == (0, "")
    assert "drained" in output


def test_a_step_that_hangs_in_a_thread_does_not_keep_a_drained_process(shop: Path, start: Start) -> None:
    # No Supervisor: one that passes between the deadline and the end of the process tells that the attempt expired.
    run = start("--roles", "scheduler,agents")
    run.until("ready")
    arriero(shop, "submit", APP, "jam")
    run.until("jammed")
    run.signal(signal.SIGTERM)
    code, output, errors = run.ended()
    assert (code, errors) == (0, "")
    assert "drained" in output


def test_another_process_submits_lists_shows_and_exports_meanwhile(shop: Path, start: Start) -> None:
    run = start()
    run.until("ready")
    held = arriero(shop, "submit", APP, "parcel", "--arguments", order("1"), "--task-id", "held", "--json")
    assert json.loads(held.stdout)["id"] == "held"
    run.until("packing 1")
    done = arriero(shop, "submit", APP, "fulfil", "--arguments", order("2"), "--task-id", "done", "--wait")
    assert (done.returncode, done.stdout) == (0, 'task done is processed: "receipt-2"\n')
    undone = arriero(shop, "submit", APP, "fulfil", "--arguments", order("3", 11), "--task-id", "undone", "--wait")
    assert (undone.returncode, undone.stdout) == (1, "task undone is compensated: out of stock\n")
    listed = json_lines(arriero(shop, "task", "list", "--json").stdout)
    assert [(task["id"], task["state"]) for task in listed] == [
        ("undone", "compensated"),
        ("done", "processed"),
        ("held", "processing"),
    ]
    shown = json.loads(arriero(shop, "task", "show", "held", "--json").stdout)
    assert shown["waiting_for"] == "step pack of Agent stock (running, attempt 1)"
    assert history_is_clean(shop)
    (shop / "gate").touch()
    run.signal(signal.SIGTERM)
    assert run.ended()[0] == 0


def test_the_store_is_the_options_then_the_environments(
    shop: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ARRIERO_STORE", f"sqlite:///{shop}/environment.db")
    first = start()
    assert "/environment.db" in first.until("ready")
    second = start("--store", f"sqlite:///{shop}/option.db")
    assert "/option.db" in second.until("ready")
    for run in (first, second):
        run.signal(signal.SIGTERM)
        assert run.ended()[0] == 0


def test_nobody_reading_its_output_does_not_stop_it(shop: Path, start: Start) -> None:
    run = start()
    run.until("ready")
    assert run._child.stdout is not None
    run._child.stdout.close()
    done = arriero(shop, "submit", APP, "fulfil", "--arguments", order("2"), "--wait")
    assert done.returncode == 0
    run.signal(signal.SIGTERM)
    assert run._child.wait(60) == 0


def test_bad_targets_end_the_process_with_one_line_and_2(shop: Path) -> None:
    refused = arriero(shop, "run", "shopfront:nothing")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr == "arriero: there is no shopfront:nothing; Apps in shopfront: app\n"


def test_with_log_format_json_each_line_of_the_log_is_an_object_with_the_process(shop: Path, start: Start) -> None:
    run = start("--log-format", "json")
    ready = run.until("ready")
    (shop / "gate").touch()
    arriero(shop, "submit", APP, "parcel", "--arguments", order("1", pieces=11), "--task-id", "one", "--wait")
    run.signal(signal.SIGTERM)
    code, _, errors = run.ended()
    assert code == 0
    lines = [json.loads(line) for line in errors.splitlines()]
    for line in lines:
        assert {"time", "level", "logger", "message"} <= set(line)
        assert line["process"] in ready


def test_an_unknown_log_format_is_refused_in_one_line(shop: Path) -> None:
    refused = arriero(shop, "run", APP, "--log-format", "xml")
    assert refused.returncode == 2
    assert (
        refused.stderr == "Error: --log-format is 'xml'; it must be text or json\n" or "text or json" in refused.stderr
    )
    assert len(refused.stderr.splitlines()) == 1
