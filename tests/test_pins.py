"""The pins for `make test-lowest` are the lower bounds of pyproject.toml."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
REQUIREMENT = re.compile(r"^([a-z0-9-]+)(?:\[[^]]*\])?>=([0-9.]+)$")


def test_the_lowest_pins_are_the_lower_bounds() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    requirements = [*project["dependencies"], *(one for extra in extras for one in extra)]
    bounds = {tuple(REQUIREMENT.findall(one)[0]) for one in requirements if not one.startswith("arriero[")}
    pins = dict(re.findall(r"^([a-z0-9-]+)==(\S+)", (ROOT / "requirements/lowest.txt").read_text(), re.MULTILINE))
    assert len(bounds) > 10
    different = {name: (bound, pins[name]) for name, bound in bounds if f"{pins[name]}.0.".find(f"{bound}.") != 0}
    assert different == {}
