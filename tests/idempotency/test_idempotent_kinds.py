"""``arriero.idempotent`` on every kind of connection: the effect, the key and the answer commit together, once."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, closing, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy
from django_databases import configure_django, describe_database
from postgres_servers import database, server, worker
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

import arriero
from arriero import IdempotencyKeyBarred, IdempotencyKeyReused, InvalidInput
from arriero.idempotency import BarredKey, bar_key, drop_keys

Execute = Callable[[str], Any]
KINDS = (
    "sqlite3",
    "sqlalchemy session on a file",
    "sqlalchemy connection on a file",
    "django on a file",
    "psycopg",
    "psycopg async",
    "sqlalchemy session",
    "sqlalchemy connection",
    "sqlalchemy async session",
    "sqlalchemy async connection",
    "django",
)


class Gone(Exception):
    """The caller's own error."""


class Service:
    """A service whose effects are rows. ``begin``: a transaction of one kind, committed at its end."""

    def __init__(self, kind: str, place: str) -> None:
        self.kind = kind
        self.place = place
        self.is_async = "async" in kind

    def call(
        self,
        key: str = "k-1",
        request: Any = None,
        answer: Any = 1,
        *,
        fail: Exception | None = None,
        swallow: bool = False,
        keeps: bool = True,
        fail_after: Exception | None = None,
    ) -> tuple[bool, Any]:
        """One whole call. ``fail``: raised in the block, after the effect. ``swallow``: the caller commits all the same.
        ``fail_after``: raised behind the block, before the caller's commit.

        Returns: whether it was new, and the answer.
        """
        if self.is_async:
            return asyncio.run(self._call_async(key, request, answer, fail, swallow, keeps, fail_after))
        with self.begin() as (connection, execute):
            call = arriero.idempotent(connection, key, request=request)
            try:
                with call:
                    if call.is_new:
                        execute("INSERT INTO effects VALUES (1)")
                        if fail is not None:
                            raise fail
                        if keeps:
                            call.keep(answer)
            except Gone:
                if not swallow:
                    raise
                return True, None
            if fail_after is not None:
                raise fail_after
            return call.is_new, call.answer

    async def _call_async(
        self,
        key: str,
        request: Any,
        answer: Any,
        fail: Exception | None,
        swallow: bool,
        keeps: bool,
        fail_after: Exception | None,
    ) -> tuple[bool, Any]:
        async with self.begin_async() as (connection, execute):
            call = arriero.idempotent(connection, key, request=request)
            try:
                async with call:
                    if call.is_new:
                        await execute("INSERT INTO effects VALUES (1)")
                        if fail is not None:
                            raise fail
                        if keeps:
                            call.keep(answer)
            except Gone:
                if not swallow:
                    raise
                return True, None
            if fail_after is not None:
                raise fail_after
            return call.is_new, call.answer

    def with_connection(self, work: Callable[[Any], Any]) -> Any:
        """Run one function of arriero in a transaction of its own; what it returns is awaited if it must be."""
        if not self.is_async:
            with self.begin() as (connection, _):
                return work(connection)

        async def run() -> Any:
            async with self.begin_async() as (connection, _):
                return await work(connection)

        return asyncio.run(run())

    def count_effects(self) -> int:
        if self.place.startswith("postgresql"):
            with psycopg.connect(self.place) as connection:
                row = connection.execute("SELECT count(*) FROM effects").fetchone()
                assert row is not None
                return int(row[0])
        with closing(sqlite3.connect(self.place)) as file:
            return int(file.execute("SELECT count(*) FROM effects").fetchone()[0])

    def begin(self) -> AbstractContextManager[tuple[Any, Execute]]:
        return _BEGIN[self.kind](self.place)

    def begin_async(self) -> AbstractAsyncContextManager[tuple[Any, Any]]:
        return _BEGIN_ASYNC[self.kind](self.place)


@contextmanager
def begin_sqlite3(place: str) -> Iterator[tuple[Any, Execute]]:
    connection = sqlite3.connect(place)
    try:
        with connection:
            yield connection, connection.execute
    finally:
        connection.close()


@contextmanager
def begin_psycopg(place: str) -> Iterator[tuple[Any, Execute]]:
    with psycopg.connect(place) as connection:
        yield connection, connection.execute


def alchemy(place: str) -> str:
    return place.replace("postgresql://", "postgresql+psycopg://", 1) if "://" in place else f"sqlite:///{place}"


@contextmanager
def begin_session(place: str) -> Iterator[tuple[Any, Execute]]:
    engine = sqlalchemy.create_engine(alchemy(place), poolclass=NullPool)
    with Session(engine) as session, session.begin():
        yield session, lambda sql: session.execute(sqlalchemy.text(sql))


@contextmanager
def begin_connection(place: str) -> Iterator[tuple[Any, Execute]]:
    engine = sqlalchemy.create_engine(alchemy(place), poolclass=NullPool)
    with engine.begin() as connection:
        yield connection, connection.exec_driver_sql


@contextmanager
def begin_django(place: str) -> Iterator[tuple[Any, Execute]]:
    configure_django(database(kind="joined"))
    from django.db import connections, transaction

    is_file = "://" not in place
    used = {"ENGINE": "django.db.backends.sqlite3", "NAME": place} if is_file else describe_database(place)
    connections.settings[place] = connections.configure_settings({"default": {}, place: used})[place]
    connection = connections[place]
    try:
        with transaction.atomic(using=place):
            yield connection, lambda sql: connection.cursor().execute(sql)
    finally:
        connection.close()
        del connections[place]
        del connections.settings[place]


@asynccontextmanager
async def begin_psycopg_async(place: str) -> AsyncIterator[tuple[Any, Any]]:
    async with await psycopg.AsyncConnection.connect(place) as connection:
        yield connection, connection.execute


@asynccontextmanager
async def begin_async_session(place: str) -> AsyncIterator[tuple[Any, Any]]:
    engine = create_async_engine(alchemy(place), poolclass=NullPool)
    async with AsyncSession(engine) as session, session.begin():
        yield session, lambda sql: session.execute(sqlalchemy.text(sql))


@asynccontextmanager
async def begin_async_connection(place: str) -> AsyncIterator[tuple[Any, Any]]:
    engine = create_async_engine(alchemy(place), poolclass=NullPool)
    async with engine.begin() as connection:
        yield connection, connection.exec_driver_sql


_BEGIN: dict[str, Callable[[str], AbstractContextManager[tuple[Any, Execute]]]] = {
    "sqlite3": begin_sqlite3,
    "sqlalchemy session on a file": begin_session,
    "sqlalchemy connection on a file": begin_connection,
    "django on a file": begin_django,
    "psycopg": begin_psycopg,
    "sqlalchemy session": begin_session,
    "sqlalchemy connection": begin_connection,
    "django": begin_django,
}
_BEGIN_ASYNC: dict[str, Callable[[str], AbstractAsyncContextManager[tuple[Any, Any]]]] = {
    "psycopg async": begin_psycopg_async,
    "sqlalchemy async session": begin_async_session,
    "sqlalchemy async connection": begin_async_connection,
}


@pytest.fixture(params=KINDS)
def service(request: pytest.FixtureRequest, tmp_path: Path) -> Service:
    kind = str(request.param)
    if kind == "sqlite3" or kind.endswith("on a file"):
        place = str(tmp_path / "service.db")
        with closing(sqlite3.connect(place)) as file, file:
            file.execute("CREATE TABLE effects (no INTEGER)")
        return Service(kind, place)
    place = empty_database()
    return Service(kind, place)


def empty_database() -> str:
    """A database of this worker with an empty table of effects, and without the table of calls."""
    name = f"idempotent_{worker()}"
    url = _created(name)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS effects, arriero_idempotent_call")
        connection.execute("CREATE TABLE effects (no INTEGER)")
    return url


_urls: dict[str, str] = {}


def _created(name: str) -> str:
    if name not in _urls:
        _urls[name] = server(16).create_database(name)
    return _urls[name]


def test_the_second_call_gets_the_answer_of_the_first(service: Service) -> None:
    assert service.call(answer={"number": 7, "of": "ü"}) == (True, {"number": 7, "of": "ü"})
    assert service.call(answer={"number": 8}) == (False, {"number": 7, "of": "ü"})
    assert service.call("k-2", answer=None) == (True, None)
    assert service.call("k-2", answer=3) == (False, None)
    assert service.count_effects() == 2


def test_another_request_under_a_key_is_refused(service: Service) -> None:
    service.call(request={"pence": 1, "order": "o"})
    assert service.call(request={"order": "o", "pence": 1})[0] is False
    for other in ({"pence": 2, "order": "o"}, b'{"pence": 1}', None):
        with pytest.raises(IdempotencyKeyReused, match="'k-1' was used for another request"):
            service.call(request=other)
    assert service.count_effects() == 1


def test_a_block_that_fails_leaves_nothing_even_if_the_caller_commits(service: Service) -> None:
    with pytest.raises(Gone):
        service.call(fail=Gone())
    service.call(fail=Gone(), swallow=True)
    assert service.count_effects() == 0
    assert service.call() == (True, 1)
    assert service.call() == (False, 1)
    assert service.count_effects() == 1


def test_a_caller_that_rolls_back_after_the_block_leaves_nothing(service: Service) -> None:
    with pytest.raises(Gone):
        service.call(fail_after=Gone())  # the table, which was created here, is gone, too
    assert service.count_effects() == 0
    assert service.call() == (True, 1)
    with pytest.raises(Gone):
        service.call("k-2", fail_after=Gone())
    assert service.count_effects() == 1


def test_a_block_without_an_answer_is_refused_and_rolled_back(service: Service) -> None:
    with pytest.raises(InvalidInput, match=r"ended without an answer.*call\.keep"):
        service.call(keeps=False)
    assert service.count_effects() == 0
    assert service.call() == (True, 1)


def test_a_barred_key_has_no_effect_later(service: Service) -> None:
    assert service.with_connection(lambda connection: bar_key(connection, "k-1")) == BarredKey(False, None)
    with pytest.raises(IdempotencyKeyBarred, match="'k-1' is barred"):
        service.call()
    assert service.count_effects() == 0


def test_who_bars_a_key_learns_what_was_answered_each_time(service: Service) -> None:
    service.call(answer={"number": 7})
    service.call("k-2", answer=None)
    for _ in range(2):
        assert service.with_connection(lambda one: bar_key(one, "k-1")) == BarredKey(True, {"number": 7})
        assert service.with_connection(lambda one: bar_key(one, "k-2")) == BarredKey(True, None)
    with pytest.raises(IdempotencyKeyBarred):
        service.call(answer={"number": 7})
    assert service.count_effects() == 2


def test_old_keys_are_dropped_and_young_ones_stay(service: Service) -> None:
    service.call()
    service.with_connection(lambda one: bar_key(one, "k-2"))
    assert service.with_connection(lambda one: drop_keys(one, older_than=timedelta(hours=1))) == 0
    assert service.with_connection(lambda one: drop_keys(one, older_than=timedelta(microseconds=1))) == 2
    assert service.call() == (True, 1)


def test_dropping_where_nothing_was_ever_called_drops_nothing(service: Service) -> None:
    assert service.with_connection(lambda one: drop_keys(one, older_than=timedelta(hours=1))) == 0
