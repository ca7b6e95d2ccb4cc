"""Whatever is wrong with a command line: one line that names it, exit code 2, no traceback."""

import os
from pathlib import Path

import pytest
from cli_calls import APP, Call, order

from arriero import __version__

FINE = ("--arguments", order("1"))


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["nothing"], "there is no `arriero nothing`"),
        (["run"], "no App is named; give MODULE:APP, or set ARRIERO_APP"),
        (["task", "list", "--nothing"], "No such option"),
        (["task", "list", "--state", "nothing"], "'nothing' is not one of 'pending'"),
        (["task", "list", "--limit", "-1"], "-1 is not in the range"),
        (["task", "list", "--after", "-1"], "-1 is not in the range"),
        (["task", "list", "--after", str(2**63)], "is not in the range"),
        (["task", "list", "--workflow", ""], "workflow has 0 characters"),
        (["task", "list", "--store", ""], "it is empty"),
        (["task", "list", "--store", "mysql://here"], "store 'mysql://here' is not known"),
        (["task", "list", "--store", "postgresql://127.0.0.1:1/shop"], "nobody listens there: start the server"),
        (["task", "list", "--store", "memory://"], "dies with it"),
        (["task", "list", "--store", "sqlite:///shopfront.py"], "not a SQLite file"),
        (["task", "list", "--store", "sqlite:///."], "it is not a file"),
        (["task", "list", "--store", "sqlite:///:memory:"], "cannot be shared"),
        (["--store", "x", "task", "list"], "--store stands behind the command: arriero task list ... --store ..."),
        (["task", "--store", "x", "list"], "--store stands behind the command: arriero task list ... --store ..."),
        (["--json", "doctor"], "--json stands behind the command: arriero doctor ... --json ..."),
        (["--nonsense", "doctor"], "No such option"),
        (["run", "shopfront"], "write MODULE:APP"),
        (["run", ":app"], "write MODULE:APP"),
        (["run", "nowhere:app"], "there is no module 'nowhere'"),
        (["run", "shopfront.nowhere:app"], "there is no module 'shopfront.nowhere'"),
        (["run", "..above:app"], "module ..above cannot be imported"),
        (["run", "shopfront:nothing"], "Apps in shopfront: app"),
        (["run", "shopfront:broken"], "its type is int"),
        (["run", APP, "--roles", "boss"], "role 'boss' is not known"),
        (["run", APP, "--roles", ","], "no role was named"),
        (["run", APP, "--agents", "post"], "Agent 'post' is not in App shopfront"),
        (["run", APP, "--agents", ""], "no Agent was named"),
        (["run", APP, "--store", "sqlite:////nowhere/at/all.db"], "the folder /nowhere/at does not exist"),
        (["submit", APP, "nothing"], "no workflow or step 'nothing'; workflows: buggy, fulfil"),
        (["submit", APP, "fulfil"], "missing order"),
        (["submit", APP, "fulfil", "--arguments", "{"], "--arguments is no JSON"),
        (["submit", APP, "fulfil", "--arguments", "\udcff"], "is not UTF-8"),
        (
            ["submit", APP, "fulfil", "--arguments", "[" * 100_000],
            "--arguments is nested more than 100 levels deep: flatten it",
        ),
        (["submit", APP, "fulfil", "--arguments", "[]"], "must be a JSON object"),
        (
            ["submit", APP, "fulfil", "--arguments", '{"order": {"id": 1}}'],
            "Expected `str`, got `int` - at `$.order.id`",
        ),
        (["submit", APP, "fulfil", "--arguments", '{"oder": {"id": "1"}}'], "unknown field `oder`"),
        (["submit", APP, "fulfil", "--arguments", '{"order": {"id": "\\u0000"}}'], "NUL"),
        (["submit", APP, "fulfil", "--arguments", order("x" * 1_000_000)], "the limit is 1,000,000"),
        (["submit", APP, "fulfil", *FINE, "--task-id", ""], "task_id has 0 characters"),
        (["submit", APP, "fulfil", *FINE, "--task-id", "x" * 256], "task_id has 256 characters"),
        (["submit", APP, "fulfil", *FINE, "--task-id", "a\tb"], "control characters"),
        (["submit", APP, "fulfil", *FINE, "--priority", "10"], "priority is 10"),
        (["submit", APP, "fulfil", *FINE, "--priority", "high"], "'high' is not a valid integer"),
        (["submit", APP, "fulfil", *FINE, "--delay", "-1"], "delay is -1.0 seconds"),
        (["submit", APP, "fulfil", *FINE, "--delay", "nan"], "delay is nan seconds"),
        (["submit", APP, "fulfil", *FINE, "--store", "memory://"], "dies with it"),
        (["check", "nowhere"], "nowhere cannot be read"),
        (["demo", "--orders", "0"], "0 is not in the range"),
        (["demo", "--faults", "many"], "'many' is not one of"),
        (["demo", "--outage", "payments20s"], "write an Agent, a colon and how long it is down, like payments:20s"),
        (["demo", "--outage", ":20s"], "write an Agent, a colon and how long it is down, like payments:20s"),
        (["demo", "--outage", "payments:"], "'' is no duration; write seconds, or a unit too"),
        (["demo", "--outage", "payments:soon"], "'soon' is no duration; write seconds, or a unit too"),
        (["demo", "--outage", "payments:-5s"], "'-5s' is no duration; write seconds, or a unit too"),
        (["demo", "--outage", "payments:0s"], "write a duration above 0, like payments:20s"),
        (["demo", "--break", "all"], "'all' is not one of"),
        (["demo", "--ledger", "nowhere.csv"], "'nowhere.csv' does not exist"),
    ],
    ids=lambda value: " ".join(value)[:60] if isinstance(value, list) else None,
)
def test_one_line_and_2(call: Call, arguments: list[str], part: str) -> None:
    refused = call(*arguments)
    assert refused.exit_code == 2, refused
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
        assert refused.exit_code == 2
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
        assert refused.exit_code in (1, 2), arguments
        assert "Traceback" not in refused.stderr
        assert refused.stderr.count("\n") == (arguments[0] != "check"), arguments  # which reads it
