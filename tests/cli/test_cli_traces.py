"""Where code failed: `arriero task explain`, `task show`, `history`, and the log of `arriero run`."""

import json
from collections.abc import Callable
from pathlib import Path

import msgspec
from cli_calls import APP, Call, Run, order

from arriero.model.failures import TaskFailure
from arriero.text.escaping import escape_text


def bug_line() -> str:
    """As it is shown, with the line's number where it stands now."""
    import shopfront

    lines = Path(shopfront.__file__).read_text().splitlines()  # the copy in the working folder
    number = next(at for at, text in enumerate(lines, start=1) if "ZeroDivisionError(" in text)
    return f'shopfront.py:{number}, in buggy: `raise ZeroDivisionError("a bug")`'


def test_explain_says_which_line_is_to_be_mended(sold: Call) -> None:
    told = sold("task", "explain", "buggy")
    assert told.exit_code == 0
    assert f"- the line to fix: {bug_line()}" in told.stdout.splitlines()
    reasons = json.loads(sold("task", "explain", "buggy", "--json").stdout)["reasons"]
    (line,) = [reason for reason in reasons if reason["kind"] == "line"]
    assert line["says"] == f"the line to fix: {bug_line()}"
    assert line["trace"][0]["frames"][0]["file"] == "shopfront.py"


def test_explain_says_where_a_refusal_was_raised(sold: Call) -> None:
    assert "- raised at shopfront.py:" in sold("task", "explain", "compensated").stdout
    assert "in reserve: `raise Permanent(" in sold("task", "explain", "compensated").stdout
    assert "in refund: `raise Permanent(" in sold("task", "explain", "unrefundable").stdout


def test_show_prints_the_traceback_and_json_has_it_whole(sold: Call) -> None:
    told = sold("task", "show", "buggy", "--trace").stdout.splitlines()
    spot, source = bug_line().split(": `")
    at = told.index(f"where the task failed; the line to fix: {bug_line()}")
    assert told[at + 1 : at + 4] == ["  ZeroDivisionError", f"    {spot}", f"      {source[:-1]}"]
    shown = json.loads(sold("task", "show", "buggy", "--json").stdout)
    assert msgspec.convert(shown["failure"], TaskFailure).trace[0].frames[0].function == "buggy"
    plain = sold("task", "show", "buggy").stdout.splitlines()
    at = plain.index(f"where the task failed; the line to fix: {bug_line()}")
    assert plain[at + 1 : at + 3] == ["`arriero task show --trace` prints the traceback.", ""]
    assert plain[at + 3].split(maxsplit=1) == ["next:", "arriero task explain buggy   arriero history buggy"]
    step = sold("task", "show", "compensated").stdout
    assert "where step 2, reserve failed; raised at shopfront.py:" in step


def test_history_names_the_line_and_the_check_knows_it(sold: Call) -> None:
    spot = bug_line().split(": `")[0]
    assert f"ZeroDivisionError: a bug [bug], at {spot}" in sold("history", "buggy").stdout
    exported = sold("export")
    Path("history.jsonl").write_text(exported.stdout)
    assert bug_line().split(", in")[0].split(":")[0] in exported.stdout
    assert sold("check", "history.jsonl").exit_code == 0


def test_the_log_of_run_tells_failed_attempts_and_the_bug_with_its_traceback(
    call: Call, start: Callable[..., Run]
) -> None:
    run = start()
    run.until("ready: ")
    for name, task_id in (("buggy", "b"), ("wired", "w")):
        given = call("submit", APP, name, "--arguments", order("1"), "--task-id", task_id, "--wait")
        assert given.exit_code == 1
    run.signal(15)
    code, _, errors = run.ended()
    assert code == 0
    assert (
        f"WARNING arriero: task b of buggy is held: ZeroDivisionError: a bug; the line to fix: {bug_line()}" in errors
    )
    attempt = "WARNING arriero: step transfer of task w: attempt 1 failed: unknown: TimeoutError: no answer (raised at"
    assert attempt in errors
    assert "; no attempt left of 1" in errors
    assert escape_text(errors, keep="\n") == errors
