"""The environments the sides run in: arriero and the ceilings here, every peer in one of its own."""

import shutil
import subprocess
import sys
from pathlib import Path

from works import PEERS

BENCH = Path(__file__).resolve().parent
STATE = BENCH.parent / ".bench"  # git-ignored: environments, bytecode, and the stores while a run lasts


class NotInstalled(Exception):
    """The environment of a peer could not be made; the text says what is missing."""


def python_of(side: str) -> Path:
    """The interpreter ``side`` runs with. A peer's environment is made on first use and after a change of its pins.

    Raises: NotInstalled - the environment could not be made; the installer's own words are on the terminal.
    """
    if side not in PEERS:
        return Path(sys.executable)
    home = STATE / side
    pins = BENCH / f"requirements-{side}.txt"
    npm_pins = BENCH / f"npm-{side}.txt"  # only of a peer whose server is a package of npm
    wanted = pins.read_text() + (npm_pins.read_text() if npm_pins.exists() else "")
    installed = home / "installed.txt"  # written last, so a broken installation is done again
    if not installed.exists() or installed.read_text() != wanted:
        print(f"installing {side} into {home.relative_to(BENCH.parent)}", flush=True)
        try:
            npm = _npm() if npm_pins.exists() else None
            _install_python(home, pins)
            if npm is not None:
                _install_npm(npm, home, npm_pins.read_text().split())
        except subprocess.CalledProcessError as failed:
            raise NotInstalled(str(failed)) from failed
        installed.write_text(wanted)
    return home / "bin" / "python"


def _install_python(home: Path, pins: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--clear", home], check=True)
    pip: list[str | Path] = [home / "bin" / "python", "-m", "pip", "--disable-pip-version-check"]
    subprocess.run([*pip, "install", "--quiet", "-r", pins], check=True)


def _npm() -> str:
    npm = shutil.which("npm")
    if npm is None:
        raise NotInstalled("its server is a package of npm, and there is no npm on the PATH: install Node.js with npm")
    return npm


def _install_npm(npm: str, home: Path, packages: list[str]) -> None:
    """Into ``home/node_modules``, without running what the packages bring to be run at installation."""
    quiet = ("--ignore-scripts", "--no-audit", "--no-fund", "--no-save", "--loglevel=error")
    subprocess.run([npm, "install", "--prefix", home, *quiet, *packages], check=True)
