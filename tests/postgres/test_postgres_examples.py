"""Examples run as they stand on PostgreSQL, and do what they promise."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from postgres_servers import server, worker

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


def test_the_example_of_an_outage_does_what_it_promises_on_postgresql() -> None:
    url = server(16).create_database("example_outage_" + worker())
    done = subprocess.run(
        [sys.executable, "-W", "error::ResourceWarning", EXAMPLES / "outage" / "run.py", "--store", url],
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS_MAX,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    assert "0 stay charged" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("--- As promised")
