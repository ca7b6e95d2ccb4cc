"""Whatever is wrong with a command line: one line that names it, exit code 2, no traceback."""

import os
from pathlib import Path

import pytest
from cli_calls import APP, Call, order

from arriero import __version__

FINE = ("--arguments", order("1"))


@pytest.mark.parametrize(
    ("arguments", "part", "code"),
    [
        (["nothing"], "there is no `arriero nothing`", 2),
        (["run"], "no App is named: type `arriero run MODULE:APP`, like shop:app, or set ARRIERO_APP", 2),
        (["submit", "fulfil"], "no App is named: type `arriero submit MODULE:APP`, like shop:app", 2),
        (["submit", APP], "Missing argument 'WORKFLOW_OR_STEP'", 2),
        (["submit"], "Missing argument 'WORKFLOW_OR_STEP'", 2),
        (["agent", "close", "bank", "--app", "shop"], "No such option '--app'", 2),
        (["task", "list", "--nothing"], "No such option", 2),
        (["task", "list", "--state", "nothing"], "'nothing' is not one of 'pending'", 2),
        (["task", "list", "--limit", "-1"], "-1 is not in the range", 2),
        (["task", "list", "--after", "-1"], "-1 is not in the range", 2),
        (["task", "list", "--after", str(2**63)], "is not in the range", 2),
        (["task", "list", "--workflow", ""], "workflow has 0 characters", 2),
        (["task", "list", "--store", ""], "it is empty", 2),
        (["task", "list", "--store", "mysql://here"], "store 'mysql://here' is not known", 2),
        (["task", "list", "--store", "postgresql://127.0.0.1:1/shop"], "nobody listens there: start the server", 5),
        (["task", "list", "--store", "memory://"], "dies with it", 2),
        (["task", "list", "--store", "sqlite:///shopfront.py"], "not a SQLite file", 5),
        (["task", "list", "--store", "sqlite:///."], "it is not a file", 5),
        (["task", "list", "--store", "sqlite:///:memory:"], "cannot be shared", 2),
        (["--store", "x", "task", "list"], "--store stands behind the command: arriero task list ... --store ...", 2),
        (["task", "--store", "x", "list"], "--store stands behind the command: arriero task list ... --store ...", 2),
        (["--json", "doctor"], "--json stands behind the command: arriero doctor ... --json ...", 2),
        (["--nonsense", "doctor"], "No such option", 2),
        (["run", "shopfront"], "write MODULE:APP", 2),
        (["run", ":app"], "write MODULE:APP", 2),
        (["run", "nowhere:app"], "there is no module 'nowhere'", 2),
        (["run", "shopfront.nowhere:app"], "there is no module 'shopfront.nowhere'", 2),
        (["run", "..above:app"], "module ..above cannot be imported", 2),
        (["run", "shopfront:nothing"], "Apps in shopfront: app", 2),
        (["run", "shopfront:broken"], "its type is int", 2),
        (["run", APP, "--roles", "boss"], "role 'boss' is not known", 2),
        (["run", APP, "--roles", ","], "no role was named", 2),
        (["run", APP, "--agents", "post"], "Agent 'post' is not in App shopfront", 2),
        (["run", APP, "--agents", ""], "no Agent was named", 2),
        (["run", APP, "--store", "sqlite:////nowhere/at/all.db"], "the folder /nowhere/at does not exist", 5),
        (["submit", APP, "nothing"], "no workflow or step 'nothing'; workflows: buggy, fulfil", 2),
        (["submit", APP, "fulfil"], "missing order", 2),
        (["submit", APP, "fulfil", "--arguments", "{"], "--arguments is not JSON", 2),
        (["submit", APP, "fulfil", "--arguments", "\udcff"], "is not UTF-8", 2),
        (
            ["submit", APP, "fulfil", "--arguments", "[" * 100_000],
            "--arguments is nested more than 100 levels deep: flatten it",
            2,
        ),
        (["submit", APP, "fulfil", "--arguments", "[]"], "must be a JSON object", 2),
        (
            ["submit", APP, "fulfil", "--arguments", '{"order": {"id": 1}}'],
            "Expected `str`, got `int` - at `$.order.id`",
            2,
        ),
        (["submit", APP, "fulfil", "--arguments", '{"oder": {"id": "1"}}'], "unknown field `oder`", 2),
        (["submit", APP, "fulfil", "--arguments", '{"order": {"id": "\\u0000"}}'], "NUL", 2),
        (["submit", APP, "fulfil", "--arguments", order("x" * 1_000_000)], "the limit is 1,000,000", 2),
        (["submit", APP, "fulfil", *FINE, "--task-id", ""], "task_id has 0 characters", 2),
        (["submit", APP, "fulfil", *FINE, "--task-id", "x" * 256], "task_id has 256 characters", 2),
        (["submit", APP, "fulfil", *FINE, "--task-id", "a\tb"], "control characters", 2),
        (["submit", APP, "fulfil", *FINE, "--priority", "10"], "priority is 10", 2),
        (["submit", APP, "fulfil", *FINE, "--priority", "high"], "'high' is not a valid integer", 2),
        (["submit", APP, "fulfil", *FINE, "--delay", "-1"], "delay is -1.0 seconds", 2),
        (["submit", APP, "fulfil", *FINE, "--delay", "nan"], "delay is nan seconds", 2),
        (["submit", APP, "fulfil", *FINE, "--store", "memory://"], "dies with it", 2),
        (["check", "nowhere"], "nowhere cannot be read", 2),
        (["demo", "--orders", "0"], "0 is not in the range", 2),
        (["demo", "--faults", "many"], "'many' is not one of", 2),
        (["demo", "--outage", "payments20s"], "write an Agent, a colon and how long it is down, like payments:20s", 2),
        (["demo", "--outage", ":20s"], "write an Agent, a colon and how long it is down, like payments:20s", 2),
        (["demo", "--outage", "payments:"], "'' is not a duration; write seconds, or a unit too", 2),
        (["demo", "--outage", "payments:soon"], "'soon' is not a duration; write seconds, or a unit too", 2),
        (["demo", "--outage", "payments:-5s"], "'-5s' is not a duration; write seconds, or a unit too", 2),
        (["demo", "--outage", "payments:0s"], "write a duration above 0, like payments:20s", 2),
        (["demo", "--break", "all"], "'all' is not one of", 2),
        (["demo", "--ledger", "nowhere.csv"], "'nowhere.csv' does not exist", 2),
    ],
    ids=lambda value: " ".join(value)[:60] if isinstance(value, list) else None,
)
def test_one_line_and_an_exit_code(call: Call, arguments: list[str], part: str, code: int) -> None:
    refused = call(*arguments)
    assert refused.exit_code == code, refused
    assert refused.stdout == ""
    (line,) = refused.stderr.splitlines()
    assert line.startswith("arriero: ")
    assert part in line


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("import nowhere_at_all", "No module named 'nowhere_at_all'"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("x = (", "SyntaxError: '(' was never closed (unfit.py, line 1)"),
        ("from arriero import Agent\nAgent('')", "name of an Agent has 0 characters"),
        ("raise RuntimeError('two\\nlines')", "RuntimeError: two lines"),
    ],
)
def test_a_module_that_cannot_be_imported_is_named_with_its_error(call: Call, shop: Path, text: str, part: str) -> None:
    (shop / "unfit.py").write_text(text)
    refused = call("run", "unfit:app")
    assert refused.exit_code == 2
    (line,) = refused.stderr.splitlines()
    assert part in line


def test_an_unknown_task_is_named_with_its_store(sold: Call, shop: Path) -> None:
    for command in (["task", "show"], ["history"]):
        refused = sold(*command, "nobody")
        assert refused.exit_code == 4
        named = f"there is no task 'nobody' in the store sqlite:///{shop}/arriero.db; see `arriero task list`"
        assert refused.stderr == f"arriero: {named}\n"
        assert "control characters" in sold(*command, "a\nb").stderr


def test_without_a_command_the_help_is_shown(call: Call) -> None:
    assert "check" in call().stdout
    assert "show" in call("task").stdout
    assert call("--version").stdout == f"arriero {__version__}\n"


BYTES = os.fsdecode(b"caf\xe9")
WITH_BYTES = (
    ["task", "list", "--workflow", BYTES], ["task", "show", BYTES], ["task", "explain", BYTES], ["history", BYTES],
    ["task", "pause", BYTES, "--by", "ana", "--reason", "x"], ["task", "cancel", "one", "--by", "ana", "--reason", BYTES],
    ["task", "cancel", "one", "--by", BYTES, "--reason", "x"], ["task", "list", f"--{BYTES}"], ["task", BYTES], [BYTES],
    ["submit", APP, BYTES, "--arguments", "{}"], ["submit", APP, "later", "--arguments", BYTES],
    ["submit", APP, "later", "--arguments", "{}", "--task-id", BYTES], ["run", BYTES], ["run", APP, "--agents", BYTES],
    ["convoy", "show", BYTES], ["convoy", "list", "--state", BYTES], ["ledger", "show", BYTES], ["replies", BYTES],
    ["check", BYTES], ["purge", "--older-than", BYTES], ["doctor", BYTES], ["migrate", "--role", "run", BYTES],
    ["store", "new-epoch", "--by", BYTES, "--reason", "x"], ["demo", "--orders", BYTES], ["export", BYTES], ["config", BYTES],
)  # fmt: skip


@pytest.mark.parametrize("arguments", WITH_BYTES, ids=lambda words: ascii(" ".join(words)))
def test_an_argument_that_is_not_utf_8_is_one_line_and_exit_code_2_at_every_command(
    sold: Call, arguments: list[str]
) -> None:
    refused = sold(*arguments)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert refused.stderr.startswith("arriero: the argument ")
    assert "caf\\udce9 is not UTF-8; write it in UTF-8" in refused.stderr
    assert refused.stderr.count("\n") == 1


def test_a_path_may_be_any_bytes(sold: Call, shop: Path) -> None:
    (shop / "arriero.db").rename(shop / f"{BYTES}.db")
    url = f"sqlite:///{BYTES}.db"
    assert sold("task", "list", "--store", url).exit_code == sold("task", "list", f"--store={url}").exit_code == 0
    (shop / BYTES).write_text("nothing")
    assert "not UTF-8" not in sold("check", BYTES).stderr


def test_the_name_of_a_file_in_the_place_of_a_text_is_refused_too(sold: Call, shop: Path) -> None:
    (shop / BYTES).touch()
    for arguments in WITH_BYTES:
        refused = sold(*arguments)
        assert refused.exit_code in (1, 2, 3, 4, 5), arguments
        assert "Traceback" not in refused.stderr
        assert refused.stderr.count("\n") == (arguments[0] != "check"), arguments  # which reads it
