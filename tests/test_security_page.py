"""SECURITY.md claims nothing without a test that holds it."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "SECURITY.md").read_text()


def test_each_defence_names_a_test_that_is_there() -> None:
    rows = [line for line in TEXT.splitlines() if line.startswith("| ") and not line.startswith("| threat ")]
    assert len(rows) > 30
    for row in rows:
        found = re.search(r"`(tests/[\w/]+\.py)::(test_\w+)` \|$", row)
        assert found is not None, row
        assert f"def {found[2]}(" in (ROOT / found[1]).read_text(), row


def test_it_says_how_to_report_what_is_supported_and_what_is_not_defended() -> None:
    titles = re.findall(r"^## (.*)$", TEXT, re.MULTILINE)
    assert titles[:3] == ["Report a vulnerability", "What is defended", "What is not defended"]
    assert "**Supported versions**" in TEXT
