"""The modules of arriero as syntax trees, each parsed once, and tests of a rule in all of them."""

import ast
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

import arriero

SRC = Path(arriero.__file__).parent


class Module(NamedTuple):
    """One file of arriero.

    Attributes:
        name: dotted, without the package: ``core.replay``; a package is named without ``__init__``.
        nodes: all of the tree.
    """

    name: str
    path: Path
    tree: ast.Module
    nodes: tuple[ast.AST, ...]

    @property
    def part(self) -> str:
        """The folder, or the file beside the folders."""
        return self.name.split(".")[0]

    @property
    def package(self) -> list[str]:
        """The words of the package at which relative imports begin."""
        words = [] if self.name == "__init__" else self.name.split(".")
        return words if self.path.name == "__init__.py" else words[:-1]

    def find_source(self, node: ast.ImportFrom) -> list[str] | None:
        """The words of what an import takes names from, without the package's own; None: it is not of arriero."""
        words = node.module.split(".") if node.module else []
        if node.level:
            return self.package[: len(self.package) - node.level + 1] + words
        return words[1:] if words[:1] == ["arriero"] else None


def list_modules(part: str | None = None) -> tuple[Module, ...]:
    """List the modules, or those of one part."""
    return tuple(module for module in _parse_modules() if part is None or module.part == part)


@cache
def _parse_modules() -> tuple[Module, ...]:
    found = []
    for path in sorted(SRC.rglob("*.py")):
        parts = path.relative_to(SRC).with_suffix("").parts
        if "_examples" not in parts:
            name = ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)
            tree = ast.parse(path.read_text(), str(path))
            found.append(Module(name, path, tree, tuple(ast.walk(tree))))
    return tuple(found)


def for_every_module(part: str | None = None) -> Callable[[Callable[[Module], None]], Callable[[], None]]:
    """Make one test of a check of one module: it names all modules that fail.

    One test for each module and rule would make thousands of tests. To collect them costs more than the checks.
    """

    def decorate(check: Callable[[Module], None]) -> Callable[[], None]:
        def check_all() -> None:
            modules, faults = list_modules(part), []
            assert modules
            for module in modules:
                try:
                    check(module)
                except Exception as error:
                    faults.append(f"{module.path.relative_to(SRC)}: {type(error).__name__}: {error}")
            if faults:
                pytest.fail("\n".join(faults), pytrace=False)

        check_all.__name__, check_all.__doc__ = check.__name__, check.__doc__
        return check_all

    return decorate
