"""The SQL of a store: named statements in ``queries/FAMILY.sql``, a file for each family of tables.

A blank line ends a statement. Its header, the comment lines before it, begins with its name: ``-- NAME: meaning``.
"""

from collections.abc import Iterator
from functools import cache
from importlib import resources


@cache
def load_statements(package: str) -> dict[str, str]:
    """The statements of a store's package by name. Each keeps its header, by which a server's views show its name."""
    return dict(read_statements(package))


def read_statements(package: str) -> Iterator[tuple[str, str]]:
    """Name and text of each statement, one family after the other."""
    for file in sorted(resources.files(package).joinpath("queries").iterdir(), key=lambda file: file.name):
        for statement in file.read_text(encoding="utf-8").rstrip("\n").split("\n\n"):
            yield statement.removeprefix("-- ").partition(":")[0], statement
