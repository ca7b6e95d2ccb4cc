"""What the files in deploy/ and pages say to a shell, judged by the command line as it is."""

import json
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import yaml

from arriero.cli.main import commands
from arriero.runtime.settings import ROLES

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
DOCKER = DEPLOY / "docker"
CHART = DEPLOY / "helm" / "arriero"
PAGE = ROOT / "docs" / "how-to" / "in-production.md"
SETTING = re.compile(r"\bARRIERO_[A-Z_]*[A-Z]\b(?!_)")


def read_yaml(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def find_mistake(words: Sequence[str]) -> str:
    """Find what a command line of arriero names that does not exist; empty: it names nothing such."""
    group: click.Command = commands
    rest = list(words)
    while isinstance(group, click.Group):
        name = rest.pop(0) if rest else ""
        if name not in group.commands:
            return f"there is no command {name!r}"
        group = group.commands[name]
    options = {name: option for option in group.params for name in option.opts if isinstance(option, click.Option)}
    while rest:
        word = rest.pop(0)
        if not word.startswith("-"):
            continue
        if word not in options:
            return f"{group.name} has no option {word}"
        values = [] if options[word].is_flag else [rest.pop(0) for _ in range(options[word].nargs) if rest]
        if word == "--roles" and (strange := set(values[0].split(",")) - set(ROLES)):
            return f"there are no roles {strange}"
    return ""


def read_instruction(name: str) -> list[str]:
    """The list of words of the Dockerfile's last instruction of a name, in the exec form; empty: it has another form."""
    text = (DOCKER / "Dockerfile").read_text(encoding="utf-8")
    line = [line for line in text.splitlines() if line.startswith(f"{name} ")][-1]
    found = re.search(r"\[.*\]$", line)
    return json.loads(found[0]) if found else []


def list_page_commands(text: str) -> list[list[str]]:
    """The command lines of arriero in the code of a page or of NOTES.txt, also those that another program starts."""
    blocks = re.findall(r"^```\w*\n(.*?)^```$", text, re.MULTILINE | re.DOTALL) or [text]
    in_blocks = re.findall(r"(?:^|\$ |-- |worker |\}\} )arriero ([^\n|>)&]+)", "\n".join(blocks), re.MULTILINE)
    in_prose = re.findall(r"`arriero ([^`\n]+)`", text)
    return [shlex.split(line) for line in (*in_blocks, *in_prose)]
