"""Docstrings open with what the thing is or does: readers scan the first words."""

import ast
import re

from source_modules import Module, for_every_module

FIRST_WORDS = "What|Who|Whose|Where|Whether|Which|How|When|Why|That|Of|To|For|From|As|By|See the module"


@for_every_module()
def test_no_docstring_opens_with_a_clause_or_a_fragment(module: Module) -> None:
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = [node for node in module.nodes if isinstance(node, documented)]
    found = [text for node in nodes if re.match(rf"(?:{FIRST_WORDS})\b", text := ast.get_docstring(node) or "")]
    assert found == []
