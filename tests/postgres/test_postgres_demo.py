"""`arriero demo` on PostgreSQL: real workers on one database, killed, balanced and checked; nothing is left behind."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from postgres_servers import as_role, server, worker

pytestmark = pytest.mark.acceptance

SECONDS_MAX = 240
ROLE = f"demo_{worker()}"
PASSWORD = "correct-horse"  # others may see it on the command line while the test runs, so it is no superuser's


@pytest.fixture
def url() -> Iterator[str]:
    """A database of the test's own, for a role with a password of its own."""
    running = server(16)
    url = running.create_database(ROLE)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {ROLE} LOGIN PASSWORD '{PASSWORD}'".encode())
        connection.execute(f"ALTER DATABASE {ROLE} OWNER TO {ROLE}".encode())
    yield as_role(url, ROLE, PASSWORD)
    running.drop_database(ROLE)
    with psycopg.connect(running.url(), autocommit=True) as connection:
        connection.execute(f"DROP ROLE {ROLE}".encode())


def demo(url: str, *options: str, **variables: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("ARRIERO_")}
    return subprocess.run(
        [sys.executable, "-m", "arriero", "demo", "--store", url, *options],
        env={**inherited, **variables},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS_MAX, check=False,
    )  # fmt: skip


def schemas(url: str) -> set[str]:
    """The schemas that somebody made in the database."""
    with psycopg.connect(url) as connection:
        found = connection.execute(
            "SELECT nspname FROM pg_namespace WHERE nspname !~ '^(pg_|information_schema|public)'"
        )
        return {name for (name,) in found.fetchall()}


def test_a_storm_over_killed_processes_balances_checks_clean_and_leaves_nothing(url: str) -> None:
    with psycopg.connect(url) as connection:
        connection.execute("CREATE SCHEMA of_somebody_else")
    options = ("--orders", "60", "--processes", "3", "--kills", "2", "--faults", "storm", "--json")
    done = demo(url, *options)
    assert done.returncode == 0, done.stdout + done.stderr
    figures = json.loads(done.stdout)
    assert figures["ok"]
    assert figures["books_balanced"]
    assert figures["history_clean"]
    assert (figures["processes"], figures["kills"], figures["held"]) == (3, 2, 0)
    assert figures["processed"] + figures["compensated"] == 60
    assert ":***@" in done.stderr
    assert PASSWORD not in done.stdout + done.stderr
    assert schemas(url) == {"of_somebody_else"}


def test_a_worker_that_looks_at_no_fence_is_found_out_by_the_history(url: str) -> None:
    done = demo(url, "--orders", "40", "--kills", "0", "--faults", "storm", "--break", "fence", "--json")
    assert done.returncode == 1, done.stdout + done.stderr
    figures = json.loads(done.stdout)
    assert not figures["history_clean"]
    assert "a report of step" in "".join(figures["problems"])
    assert schemas(url) == set()


def test_what_is_kept_is_the_schema_and_the_folder_and_no_file_holds_the_password(url: str, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    named = f"{url}?schema=looked_at"
    done = demo(named, "--orders", "10", "--kills", "0", "--faults", "none", "--keep", str(kept))
    assert done.returncode == 0, done.stdout + done.stderr
    assert schemas(url) == {"looked_at", "looked_at_shop"}
    with psycopg.connect(url) as connection:
        pairs = connection.execute(
            "SELECT count(*), count(o.id), count(t.task_id)"
            " FROM looked_at_shop.shop_order AS o FULL JOIN looked_at.task AS t ON t.task_id = o.id"
        ).fetchone()
    assert pairs == (10, 10, 10)
    assert {"book.sqlite", "worker.log", "submission.log", "history.jsonl"} <= {path.name for path in kept.iterdir()}
    assert not [path for path in kept.iterdir() if PASSWORD.encode() in path.read_bytes()]


def test_a_schema_that_is_there_is_refused_and_left_alone(url: str) -> None:
    with psycopg.connect(url) as connection:
        connection.execute("CREATE SCHEMA taken")
    done = demo(f"{url}?schema=taken", "--orders", "10")
    assert done.returncode == 2
    assert 'schema "taken" already exists' in done.stderr
    assert schemas(url) == {"taken"}


def test_a_server_that_does_not_answer_is_told_without_the_password(url: str) -> None:
    port = url.rpartition("/")[0].rpartition(":")[2]
    done = demo(url.replace(port, "1"), "--orders", "10")
    assert done.returncode == 2
    assert "refused" in done.stderr
    assert PASSWORD not in done.stdout + done.stderr


def test_supervisors_whose_leader_is_killed_balance(url: str) -> None:
    options = ("--orders", "80", "--kills", "0", "--supervisors", "3", "--json")
    done = demo(url, *options, ARRIERO_LEADER_SECONDS="1.5")
    assert done.returncode == 0, done.stdout + done.stderr
    election = json.loads(done.stdout)["election"]
    assert (election["supervisors"], election["leader_kills"]) == (3, 3)
    assert election["leader_changes"] >= 3
