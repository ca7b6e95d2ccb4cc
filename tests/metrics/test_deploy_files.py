"""The dashboard and the alert rules use metrics that the code exports, and send people to pages that are there."""

import json
import re
from pathlib import Path
from typing import Any

import click
import pytest

from arriero.cli.main import commands
from arriero.metrics import FAMILIES

ROOT = Path(__file__).parents[2]
DASHBOARD = ROOT / "deploy" / "grafana" / "arriero.json"
RULES = ROOT / "deploy" / "prometheus" / "arriero.rules.yaml"
SAMPLES = {sample: family for family in FAMILIES for sample in family.samples}
NAME = re.compile(r"\barriero_\w+")
SELECTED = re.compile(r"\b(arriero_\w+)\{([^}]*)\}")
LABEL = re.compile(r"(\w+)\s*(?:=~|!=|!~|=)")
OF_SCRAPE = {"job", "instance"}


def list_expressions() -> list[str]:
    def of(value: Any) -> list[str]:
        if isinstance(value, dict):
            own = [value["expr"]] if "expr" in value else []
            return own + [found for each in value.values() for found in of(each)]
        return [found for each in value for found in of(each)] if isinstance(value, list) else []

    return of(json.loads(DASHBOARD.read_text())) + [rule["expr"] for rule in read_rules()]


def read_rules() -> list[dict[str, str]]:
    """The rules, each with its keys and those of its annotations: as much of YAML as the file uses."""
    folded = re.sub(r">-\n\s+(.*)\n\s+(.*)\n", r"\1 \2\n", RULES.read_text())
    rules = re.split(r"^ +- alert: ", folded, flags=re.MULTILINE)[1:]
    keys = re.compile(r"^ +(\w+): +(.+)$", re.MULTILINE)
    return [{"alert": rule.split("\n", 1)[0], **dict(keys.findall(rule))} for rule in rules]


@pytest.mark.parametrize("expression", list_expressions())
def test_each_metric_and_label_in_a_query_is_exported(expression: str) -> None:
    assert NAME.findall(expression)
    for name in NAME.findall(expression):
        assert name in SAMPLES, name
    for name, selected in SELECTED.findall(expression):
        allowed = {*SAMPLES[name].labels, *OF_SCRAPE}
        assert set(LABEL.findall(selected)) <= allowed, (name, selected)


def test_the_dashboard_shows_every_metric() -> None:
    shown = {SAMPLES[name].name for expression in list_expressions() for name in NAME.findall(expression)}
    assert {family.name for family in FAMILIES} - shown == set()


def slug(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


@pytest.mark.parametrize("rule", read_rules(), ids=lambda rule: rule["alert"])
def test_each_rule_says_what_it_is_what_to_type_and_where_to_read(rule: dict[str, str]) -> None:
    assert len(rule["summary"]) > 10
    page, _, heading = rule["runbook"].partition("#")
    headings = re.findall(r"^#+ (.*)$", (ROOT / page).read_text(), flags=re.MULTILINE)
    assert heading in map(slug, headings)
    program, *words = rule["command"].split()
    assert program == "arriero"
    found: click.Command = commands
    while isinstance(found, click.Group) and words:
        found = found.commands[words.pop(0)]
    options = {option for one in found.params for option in one.opts}
    assert {word for word in words if word.startswith("--")} <= options


def test_rules_are_counted_so_that_the_reader_of_the_file_misses_none() -> None:
    assert len(read_rules()) == RULES.read_text().count("alert: ") > 10
