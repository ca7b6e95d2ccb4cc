"""Files of code: the tree of each function, the comments, and whether it is the user's own code."""

import ast
import io
import linecache
import re
import tokenize
import types
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ..errors import ArrieroError

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
FUNCTION_NODES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)

_match_allowance = re.compile(r"#\s*arriero:\s*allow\b[\s:,.-]*(.*)").search


_LEAVES = (ast.expr_context, ast.operator, ast.unaryop, ast.cmpop, ast.boolop, ast.Constant)


def list_children(node: ast.AST) -> list[ast.AST]:
    """List the nodes right below a node, but for those that hold no name: several times faster than ``ast``'s own."""
    found: list[ast.AST] = []
    for value in vars(node).values():
        if isinstance(value, list):
            found += [one for one in value if isinstance(one, ast.AST) and not isinstance(one, _LEAVES)]
        elif isinstance(value, ast.AST) and not isinstance(value, _LEAVES):
            found.append(value)
    return found


class SourceUnreadable(ArrieroError):
    """The source of a function cannot be read; the text says why, after the function's name."""


class SourceFile(NamedTuple):
    """One file of code.

    Args:
        lines: of its text.
        functions: by their first lines.
        allowances: the reasons of the comments ``# arriero: allow REASON``, by their lines.
    """

    lines: list[str]
    functions: dict[int, list[FunctionNode]]
    allowances: dict[int, str]

    def find_column(self, node: ast.expr) -> int:
        """Find the column of an expression, counted in characters from 1: the tree counts bytes."""
        line = self.lines[node.lineno - 1]
        return len(line.encode()[: node.col_offset].decode(errors="replace")) + 1


class Sources:
    """The files that were read, each once."""

    def __init__(self) -> None:
        self._files: dict[str, SourceFile | None] = {}

    def find_node(self, function: types.FunctionType) -> tuple[SourceFile, FunctionNode]:
        """Find the tree of a function in its file. Raises SourceUnreadable."""
        code = function.__code__
        file = self._read(code.co_filename, function)
        if file is None:
            raise SourceUnreadable(f"its source cannot be read: {code.co_filename}")
        name = None if code.co_name == "<lambda>" else code.co_name
        found = [one for one in file.functions.get(code.co_firstlineno, []) if getattr(one, "name", None) == name]
        if len(found) > 1:  # several lambdas on one line
            found = [one for one in found if _holds(one, code)] or found
        if not found:
            raise SourceUnreadable(f"{code.co_filename} has no such function at line {code.co_firstlineno}")
        return file, found[0]

    def _read(self, path: str, function: types.FunctionType) -> SourceFile | None:
        """Read a file in the encoding that it names; None: it is missing, or is not Python."""
        if path not in self._files:
            linecache.checkcache(path)
            names = (
                None if path.startswith("<") else function.__globals__
            )  # the loader of a module in an archive has its text
            lines = linecache.getlines(path, names)
            self._files[path] = _parse(lines) if lines else None
        return self._files[path]


def _parse(lines: list[str]) -> SourceFile | None:
    text = "".join(lines)
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return None
    functions: dict[int, list[FunctionNode]] = {}
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        waiting += list_children(node)
        if isinstance(node, FUNCTION_NODES):
            decorators = [] if isinstance(node, ast.Lambda) else node.decorator_list
            first = min([node.lineno, *(one.lineno for one in decorators)])
            functions.setdefault(first, []).append(node)
    return SourceFile(lines, functions, dict(_list_allowances(text)))


def _list_allowances(text: str) -> Iterator[tuple[int, str]]:
    if "arriero:" not in text:
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and (found := _match_allowance(token.string)) is not None:
            yield token.start[0], found[1].strip()


def _holds(node: FunctionNode, code: types.CodeType) -> bool:
    begin, end = (node.lineno, node.col_offset), (node.end_lineno or 0, node.end_col_offset or 0)
    return all(
        begin <= (line, column) and (last, last_column) <= end
        for line, last, column, last_column in code.co_positions()
        if line is not None and last is not None and column is not None and last_column is not None and last_column
    )


def show_path(path: str) -> str:
    """The path as it is shown: relative if it is below the current folder."""
    try:
        return str(Path(path).resolve().relative_to(Path.cwd()))
    except (ValueError, OSError):
        return path
