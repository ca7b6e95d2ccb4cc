"""``arriero acts``: what operators did, and where to continue."""

import json

from cli_calls import Call


def test_acts_are_listed_newest_first_and_by_operator(sold: Call) -> None:
    for name, verb in (("ana", "pause"), ("eva", "resume")):
        assert sold("workflow", verb, "fulfil", "--by", name, "--reason", f"{verb} it").exit_code == 0
    acts = [json.loads(line) for line in sold("acts", "--json").stdout.splitlines()]
    assert [(one["by"], one["verb"], one["kind"], one["subject"]) for one in acts[:2]] == [
        ("eva", "resumed", "workflow", "fulfil"),
        ("ana", "paused", "workflow", "fulfil"),
    ]
    shown = sold("acts", "--by", "ana", "--limit", "1")
    assert "pause it" in shown.stdout
    assert "resume it" not in shown.stdout


def test_a_page_of_acts_says_where_to_continue(sold: Call) -> None:
    for verb in ("pause", "resume"):
        assert sold("workflow", verb, "fulfil", "--by", "ana", "--reason", f"{verb} it").exit_code == 0
    first = sold("acts", "--limit", "1")
    assert "resume it" in first.stdout
    more = first.stderr.split("--before ")[1].strip()
    assert "pause it" in sold("acts", "--limit", "1", "--before", more).stdout


def test_an_operator_without_acts_has_an_empty_list(sold: Call) -> None:
    shown = sold("acts", "--by", "nobody")
    assert (shown.exit_code, shown.stdout, shown.stderr) == (0, "", "No acts of operators for --by nobody.\n")
