"""The crash points: named, told by the environment alone, refused when the name is wrong."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import arriero
from arriero import InvalidInput
from arriero.runtime import crash_points
from arriero.runtime.crash_points import CRASH_POINTS, VARIABLE, parse_point

SOURCE = Path(arriero.__file__).parent


def test_every_named_point_is_reached_somewhere() -> None:
    code = "".join(
        path.read_text()
        for path in SOURCE.rglob("*.py")
        if path.name != "crash_points.py" and "testing" not in path.parts
    )
    reached = set(re.findall(r'"((?:before|after)_[a-z_]+)"', code))
    assert reached == set(CRASH_POINTS)


def test_each_point_has_a_sentence() -> None:
    assert all(text.endswith(".") and len(text) > 20 for text in CRASH_POINTS.values())


def test_name_and_number_are_read() -> None:
    assert parse_point("before_commit:3") == ("before_commit", 3)


@pytest.mark.parametrize(
    "told",
    ["nowhere:1", "before_commit", "before_commit:", "before_commit:0", "before_commit:-1", "before_commit:one", ":1"],
)
def test_anything_else_is_refused_by_name(told: str) -> None:
    with pytest.raises(InvalidInput, match=VARIABLE):
        parse_point(told)


def test_nothing_is_armed_without_the_variable() -> None:
    assert not crash_points.is_armed
    assert crash_points._name is None
    for name in CRASH_POINTS:
        crash_points.reach(name)


def test_the_variable_is_read_when_an_app_opens_and_a_wrong_one_stops_it(tmp_path: Path) -> None:
    program = "import asyncio; from arriero import App; asyncio.run(App('a', store='sqlite:///x.db').__aenter__())"
    environment = {**os.environ, VARIABLE: "nowhere:1"}
    told = subprocess.run(
        [sys.executable, "-c", program], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert told.returncode == 1
    assert "InvalidInput: ARRIERO_CRASH_AT names the point 'nowhere'" in told.stderr
    assert not (tmp_path / "x.db").exists()
