"""The SQL files: each statement is named once, says what it is for, and is used."""

import re
from collections import Counter
from pathlib import Path

import pytest

import arriero
from arriero.store.columns import load_statements, read_statements

SRC = Path(arriero.__file__).parent
PACKAGES = ("arriero.store.sqlite", "arriero.store.postgres")
HEADER = re.compile(r"-- [a-z]+(_[a-z]+)*: \S.*(\n-- .*)*\n[A-Z]")  # its name and meaning, more lines of both, then SQL


@pytest.mark.parametrize("package", PACKAGES)
def test_no_two_statements_of_a_store_have_one_name(package: str) -> None:
    names = Counter(name for name, _ in read_statements(package))
    assert names
    assert [name for name, count in names.items() if count > 1] == []


@pytest.mark.parametrize("package", PACKAGES)
def test_each_statement_has_a_header_that_begins_with_its_name(package: str) -> None:
    for name, statement in load_statements(package).items():
        assert statement.startswith(f"-- {name}: ")
        assert HEADER.match(statement), statement


@pytest.mark.parametrize("package", PACKAGES)
def test_each_statement_is_used_by_some_code(package: str) -> None:
    code = "\n".join(path.read_text() for path in (SRC / "store").rglob("*.py"))
    assert [name for name in load_statements(package) if f'"{name}"' not in code] == []
