"""The example of a box office on one SQLite file runs as it stands: fifty posts at once, no error, balanced books."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

RUN = Path(__file__).parents[2] / "examples" / "fastapi_sqlite" / "run.py"
SECONDS_MAX = 120.0


@pytest.mark.acceptance
def test_fifty_posts_at_once_on_one_file_end_without_an_error(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("ARRIERO_", "TICKETS_"))}
    command = [sys.executable, "-W", "error::ResourceWarning", RUN]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=SECONDS_MAX
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    assert done.stdout.splitlines()[0] == "POST, fifty at once: 50 x 202"
    assert done.stdout.splitlines()[-1].startswith("as promised")
