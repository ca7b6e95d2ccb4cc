"""A skipped test says which command installs what it needs; the summary says it once for all tests that need it."""

import ast
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from skip_count import EXPECTED_SKIPS, SkipCount

ROOT = Path(__file__).parents[1]
SKIPS = ("pytest.skip", "pytest.mark.skipif", "pytest.importorskip", "Unavailable")


def report(reason: str) -> pytest.TestReport:
    return cast(pytest.TestReport, SimpleNamespace(skipped=True, longrepr=("test_x.py", 1, f"Skipped: {reason}")))


def list_reasons() -> Iterator[tuple[str, str]]:
    """Each reason that is written out in a skip, and where."""
    for path in (*(ROOT / "tests").rglob("*.py"), *(ROOT / "lab").rglob("*.py")):
        text = path.read_text()
        if not any(f"{name}(" in text for name in SKIPS):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in SKIPS:
                given = [keyword.value for keyword in node.keywords if keyword.arg == "reason"] or node.args[:1]
                yield from (
                    (f"{path.relative_to(ROOT)}:{node.lineno}", value.value)
                    for value in given
                    if isinstance(value, ast.Constant) and isinstance(value.value, str)
                )


def test_skips_are_reported_in_one_line_for_each_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    skips = SkipCount()
    for reason in ["etcd is not installed; run: a", *["PgBouncer is not installed; run: b"] * 214, EXPECTED_SKIPS[0]]:
        skips.pytest_runtest_logreport(report(reason))
    skips.pytest_terminal_summary(cast(Any, SimpleNamespace(write_line=lines.append)))
    assert lines == [
        "unexpected skips:  214  PgBouncer is not installed; run: b",
        "unexpected skips:    1  etcd is not installed; run: a",
    ]
    session = cast(pytest.Session, SimpleNamespace(exitstatus=0))
    for ci, status in (("", 0), ("true", pytest.ExitCode.TESTS_FAILED)):
        monkeypatch.setenv("CI", ci)
        skips.pytest_sessionfinish(session)
        assert session.exitstatus == status


def test_every_skip_names_the_command_that_installs_what_it_needs() -> None:
    reasons = list(list_reasons())
    assert len(reasons) > 8
    assert not [found for found in reasons if "; run: " not in found[1] and found[1] not in EXPECTED_SKIPS]
