"""No page reads a whole table, however many finished tasks there are: by what both databases say of it."""

import sqlite3
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import psycopg
import pytest
from postgres_servers import server, worker

from arriero.server.application import build_application
from arriero.server.authentication import COOKIE, TokenAuthenticator
from arriero.store.sqlite import connection as connections
from bench.sides.filling import fill
from lab.console_paths import list_console_paths
from lab.console_shop import build_shop, plant

GROWING = ("task", "body", "step", "history")
FINISHED = 60_000  # three times what a page of a list looks through
WORK_MAX = 500  # thousands of steps: 20,000 tasks by the costliest filter; all tasks by the cheapest are 540


async def fill_shop(url: str) -> str:
    """Bring a shop into trouble, with many finished tasks beside. Returns: a token."""
    app = build_shop(url)
    async with app.running():
        await plant(app, 1)
        token = (await app.tokens.create("ana", scopes=["admin"], by="test")).token
    fill(url, FINISHED)
    return token


async def look_at_pages(url: str, token: str, begin: Callable[[str], None]) -> int:
    """Look at each page. ``begin``: is called with its path before. Returns: how many there are."""
    app = build_shop(url)
    async with app:
        served = build_application(app, TokenAuthenticator(app.session))
        transport = httpx2.ASGITransport(app=served, raise_app_exceptions=False)
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as http:
            http.cookies.set(COOKIE, token)
            paths = list_console_paths(served)
            for path in paths:
                begin(path)
                answer = await http.get(path)
                assert answer.status_code == 200, (path, answer.text[-500:])
            return len(paths)


async def test_no_page_reads_a_whole_table_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"sqlite:///{tmp_path / 'shop.db'}"
    token = await fill_shop(url)
    asked: list[tuple[str, str]] = []
    path_now = [""]
    worked: Counter[str] = Counter()  # thousands of steps of SQLite's machine, by path
    connect = sqlite3.connect

    def traced(*args: Any, **options: Any) -> sqlite3.Connection:
        opened = connect(*args, **options)
        opened.set_trace_callback(lambda sql: asked.append((path_now[0], sql)))
        opened.set_progress_handler(lambda: worked.update((path_now[0],)), 1_000)
        return opened

    monkeypatch.setattr(connections.sqlite3, "connect", traced)
    assert await look_at_pages(url, token, lambda path: path_now.__setitem__(0, path)) > 10
    monkeypatch.undo()
    faults = set()
    with sqlite3.connect(tmp_path / "shop.db") as connection:
        connection.create_function("arriero_folded", 1, str)
        for path, sql in asked:
            if not path or not sql.lstrip().upper().startswith(("SELECT", "WITH")):
                continue
            plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}")]
            faults |= {(path, step, sql.split("FROM")[0][:60]) for step in plan if reads_whole(step)}
    assert faults == set()
    assert {path: count for path, count in worked.items() if count > WORK_MAX} == {}


def reads_whole(step: str) -> bool:
    """A scan of a growing table; one by a partial index is of what is not finished."""
    words = step.replace("arriero_", "").split()
    whole = words[0] == "SCAN" and words[1] in GROWING
    return whole and ("INDEX" not in words or "AUTOINDEX" in step)


async def test_no_page_reads_a_whole_table_of_postgresql() -> None:
    name = f"pages_{worker()}"
    server().drop_database(name)
    url = server().create_database(name)
    token = await fill_shop(url)

    def count_read() -> dict[str, int]:
        """Rows that scans of whole tables have read; the counts of a connection that is closed are written."""
        with psycopg.connect(url, autocommit=True) as connection:
            rows = connection.execute(
                "SELECT relname, coalesce(seq_tup_read, 0) FROM pg_stat_user_tables WHERE schemaname = 'arriero'"
            ).fetchall()
        return {table: int(count) for table, count in rows if table in GROWING}

    before = count_read()
    pages = await look_at_pages(f"{url}?listen=off", token, lambda path: None)
    read = {table: count - before[table] for table, count in count_read().items()}
    server().drop_database(name)
    assert pages > 10
    assert {table: count for table, count in read.items() if count} == {}
