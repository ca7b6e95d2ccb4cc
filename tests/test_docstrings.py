"""Docstrings open with what the thing is or does: readers scan the first words."""

import ast
import re
from pathlib import Path

import pytest

import arriero

SRC = Path(arriero.__file__).parent
FIRST_WORDS = "What|Who|Whose|Where|Whether|Which|How|When|Why|That|Of|To|For|From|As|By|See the module"


@pytest.mark.parametrize("path", sorted(SRC.rglob("*.py")), ids=lambda path: str(path.relative_to(SRC)))
def test_no_docstring_opens_with_a_clause_or_a_fragment(path: Path) -> None:
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, documented)]
    found = [text for node in nodes if re.match(rf"(?:{FIRST_WORDS})\b", text := ast.get_docstring(node) or "")]
    assert found == []
