"""The wheel and the sdist as users get them: in an environment with what they declare and nothing else, the demo runs."""

import importlib.metadata
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator, Sequence
from email.parser import Parser
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder
from packaging.requirements import Requirement

import arriero

ROOT = Path(__file__).parents[1]
NOT_PUBLISHED = ("tests", "lab", ".ci", "requirements", "deploy", "Makefile")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist, and the wheel that is built from nothing but it."""
    folder = tmp_path_factory.mktemp("dist")
    hatchling = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    subprocess.run([*hatchling, "-t", "sdist"], cwd=ROOT, capture_output=True, check=True)
    (sdist,) = folder.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    source = folder / sdist.name.removesuffix(".tar.gz")
    subprocess.run([*hatchling, "-t", "wheel"], cwd=source, capture_output=True, check=True)
    return folder


def find_wheel(built: Path) -> Path:
    (wheel,) = built.glob("*.whl")
    return wheel


def list_needed(declared: Sequence[str], extra: str) -> Iterator[Requirement]:
    """Those of the declared requirements that count here, with an extra or, if it is empty, without."""
    for text in declared:
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
            yield requirement


def install(wheel: Path, folder: Path, extra: str) -> Path:
    """An environment with the wheel, and copies of what it declares from that of the tests. Returns its ``bin``.

    Nothing comes from the network; what is not declared is not there.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)
        (metadata,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        declared = Parser().parsestr(archive.read(metadata).decode()).get_all("Requires-Dist", [])
    waiting = [(declared, "")] + [(declared, extra)] * bool(extra)
    seen: set[tuple[str, str]] = set()
    while waiting:
        for needed in list_needed(*waiting.pop()):
            for part in ("", *needed.extras):
                if (needed.name, part) in seen:
                    continue
                seen.add((needed.name, part))
                if needed.name == "arriero":
                    waiting.append((declared, part))
                    continue
                distribution = importlib.metadata.distribution(needed.name)
                copy_files(distribution, packages)
                waiting.append((distribution.requires or [], part))
    return folder / "bin"


def copy_files(distribution: importlib.metadata.Distribution, packages: Path) -> None:
    for file in distribution.files or []:
        source = Path(str(file.locate()))
        if ".." not in file.parts and source.is_file():
            target = packages / file
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)


def run(bin_folder: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(bin_folder / "python"), "-I", "-m", "arriero", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.acceptance
def test_the_demo_runs_from_the_wheel_with_the_packages_that_its_extra_declares(built: Path, tmp_path: Path) -> None:
    environment = install(find_wheel(built), tmp_path / "env", "demo")
    assert run(environment, tmp_path, "--version").stdout == f"arriero {arriero.__version__}\n"
    done = run(environment, tmp_path, "demo", "--orders", "20", "--kills", "1")
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_wheel_alone_runs_the_program_of_the_readme_and_says_what_the_demo_needs(
    built: Path, tmp_path: Path
) -> None:
    environment = install(find_wheel(built), tmp_path / "env", "")
    program = ROOT / "examples" / "quickstart" / "quickstart.py"
    done = subprocess.run(
        [environment / "python", "-I", program], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["1002 undone: out of stock"]), done.stderr
    refused = run(environment, tmp_path, "demo")
    assert refused.returncode == 2
    assert refused.stderr == (
        "arriero: the demo needs fastapi, httpx2, starlette, uvicorn: run `pip install '.[demo]'` in a clone of arriero, "
        "or `uvx --from '.[demo]' arriero demo` there\n"
    )


def test_a_wheel_built_in_a_used_clone_holds_nothing_that_git_ignores(tmp_path: Path) -> None:
    for part in ("src/arriero/cli", "examples/orders"):
        shutil.copytree(ROOT / part, tmp_path / part)
    for file in (
        ".gitignore",
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "src/arriero/version.py",
        "examples/__init__.py",
    ):
        shutil.copy(ROOT / file, tmp_path / file)
    clean = list_wheel(tmp_path)
    for name in ("arriero.db", "arriero.db-wal", "shop.db", "__pycache__/shop.pyc", ".demo/log"):
        (tmp_path / "examples/orders" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "examples/orders" / name).write_text("of a run")
    assert list_wheel(tmp_path) == clean
    assert {"arriero/cli/main.py", "arriero/_examples/examples/orders/shop.py"} <= clean


def list_wheel(folder: Path) -> set[str]:
    """List the files of a wheel as the build backend chooses them; nothing is built."""
    return {file.distribution_path for file in WheelBuilder(str(folder)).recurse_included_files()}


def test_the_sdist_holds_neither_tests_nor_lab(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = [Path(name).parts[1:] for name in archive.getnames()]
    assert ("src", "arriero", "py.typed") in names
    assert [name for name in names if name[0] in NOT_PUBLISHED] == []


def test_the_version_stands_in_one_file_and_no_extra_is_for_tests(built: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert ("version" in project, project["dynamic"]) == (False, ["version"])
    with zipfile.ZipFile(find_wheel(built)) as archive:
        metadata = Parser().parsestr(archive.read(f"arriero-{arriero.__version__}.dist-info/METADATA").decode())
    assert metadata["Version"] == arriero.__version__
    assert "test" not in (metadata.get_all("Provides-Extra") or [])
