"""No page and no error installs arriero from a package index: it is on none. It is installed from a clone or from a wheel."""

import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
FROM_INDEX = re.compile(
    r"\b(?:pip3?|uv|uvx|pipx|poetry|pdm|conda)\b(?! --from '?\.)[^\n`]*[\s'\"]arriero(?:\[|[=<>~'\"\s`]|$)",
    re.MULTILINE,
)
FROM_CLONE = re.compile(r"pip install ['\"]\.\[([a-z,]+)\]['\"]|describe_install\(['\"]([a-z]+)['\"]\)")


def list_texts() -> Iterator[tuple[str, str]]:
    """Each file of the repository that a user reads or that writes to users, with its text."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in listed.splitlines():
        if not name.startswith(("tests/", "requirements/")) and name.endswith(
            (".py", ".md", ".json", ".toml", ".yaml")
        ):
            yield name, (ROOT / name).read_text()


def test_nothing_installs_arriero_from_an_index() -> None:
    found = [(name, match[0]) for name, text in list_texts() for match in FROM_INDEX.finditer(text)]
    assert found == []


def test_every_extra_that_a_text_installs_is_there() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = {
        extra
        for _, text in list_texts()
        for match in FROM_CLONE.finditer(text)
        for extra in (match[1] or match[2]).split(",")
    }
    assert len(named) > 8
    assert named <= set(extras)
