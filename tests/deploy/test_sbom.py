"""The bill of materials has every package of the image, with its hashes and who needs it."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from deploy_commands import ROOT


def build(folder: Path, name: str) -> dict[str, Any]:
    target = folder / f"{name}.json"
    requirements = ROOT / "requirements" / f"{name}.txt"
    subprocess.run([sys.executable, "-I", ROOT / ".ci" / "sbom", requirements, target], check=True, capture_output=True)
    found: dict[str, Any] = json.loads(target.read_text())
    return found


@pytest.mark.parametrize("name", ["server", "test", "lowest", "demo"])
def test_every_pinned_package_is_in_the_bill_of_materials_with_its_hashes(tmp_path: Path, name: str) -> None:
    bom = build(tmp_path, name)
    text = (ROOT / "requirements" / f"{name}.txt").read_text()
    pins = set(re.findall(r"^([^\s=\[]+)(?:\[.*\])?==(\S+)", text, re.MULTILINE))
    assert {(one["name"], one["version"]) for one in bom["components"]} == pins
    hashes = [found["value"] for one in bom["components"] for found in one["properties"]]
    assert sorted(hashes) == sorted(re.findall(r"--hash=(\S+)", text))
    assert all(one["purl"] == f"pkg:pypi/{one['name']}@{one['version']}" for one in bom["components"])


def test_each_package_of_the_image_is_reached_from_arriero(tmp_path: Path) -> None:
    bom = build(tmp_path, "server")
    needs = {one["ref"]: one["dependsOn"] for one in bom["dependencies"]}
    waiting, reached = [bom["metadata"]["component"]["bom-ref"]], set()
    while waiting:
        one = waiting.pop()
        reached.add(one)
        waiting += [more for more in needs[one] if more not in reached]
    assert reached == needs.keys()
    assert len(needs) == len(bom["components"]) + 1


def test_the_same_requirements_make_the_same_bill_of_materials(tmp_path: Path) -> None:
    assert build(tmp_path, "server") == build(tmp_path, "server")
