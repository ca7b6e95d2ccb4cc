"""The examples with web frameworks run as they stand, each with a server of its own, and do what they promise."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
SECONDS_MAX = 120.0


@pytest.mark.parametrize("name", ["fastapi_shop", "django_shop"])
def test_the_example_does_what_it_promises(name: str, tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name not in ("ARRIERO_STORE", "SHOP_DATABASE")}
    done = subprocess.run(
        [sys.executable, "-W", "error::ResourceWarning", EXAMPLES / name / "run.py"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS_MAX,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert "GET  /orders/1001: 200 {'receipt': 'receipt-1001-4200'}" in lines
    assert "    refunded 900 of 1002" in lines
    assert "GET  /orders/1002: 409 {'detail': 'out of stock'}" in lines
    assert "GET  /orders/1003: 404 {'detail': 'no such order'}" in lines
    assert lines[-1].startswith("as promised")
