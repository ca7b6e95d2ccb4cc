"""The environments the sides run in: arriero and the ceilings here, every peer in one of its own."""

import subprocess
import sys
from pathlib import Path

from works import PEERS

BENCH = Path(__file__).resolve().parent
STATE = BENCH.parent / ".bench"  # git-ignored: environments, bytecode, and the stores while a run lasts


def python_of(side: str) -> Path:
    """The interpreter ``side`` runs with. A peer's environment is made on first use and after a change of its pins.

    Raises: CalledProcessError - the environment could not be made; pip's own words are on the terminal.
    """
    if side not in PEERS:
        return Path(sys.executable)
    home = STATE / side
    pins = BENCH / f"requirements-{side}.txt"
    installed = home / "installed.txt"  # written last, so a broken installation is done again
    if not installed.exists() or installed.read_text() != pins.read_text():
        print(f"installing {side} into {home.relative_to(BENCH.parent)}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", home], check=True)
        pip: list[str | Path] = [
            home / "bin" / "python",
            "-m",
            "pip",
            "--disable-pip-version-check",
            "install",
            "--quiet",
        ]
        subprocess.run([*pip, "install", "--quiet", "-r", pins], check=True)
        installed.write_text(pins.read_text())
    return home / "bin" / "python"
