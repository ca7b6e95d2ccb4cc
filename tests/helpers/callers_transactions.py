"""Transactions of a caller on PostgreSQL, by each kind of connection that ``submit(connection=)`` and ``guarded`` take."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker
from sqlalchemy.pool import NullPool


@dataclass
class Transaction:
    """A transaction of a caller: left normally it commits, by an exception it rolls back."""

    connection: Any
    execute: Callable[[str], Awaitable[object]]


Begins = Callable[[str], AbstractAsyncContextManager[Transaction]]


def awaited(execute: Callable[[str], object]) -> Callable[[str], Awaitable[object]]:
    async def run(sql: str) -> object:
        return execute(sql)

    return run


@asynccontextmanager
async def psycopg_plain(url: str) -> AsyncIterator[Transaction]:
    with psycopg.connect(url) as connection:
        yield Transaction(connection, awaited(lambda sql: connection.execute(sql.encode())))


@asynccontextmanager
async def psycopg_in_transaction(url: str) -> AsyncIterator[Transaction]:
    with psycopg.connect(url, autocommit=True) as connection, connection.transaction():
        yield Transaction(connection, awaited(lambda sql: connection.execute(sql.encode())))


@asynccontextmanager
async def psycopg_async(url: str) -> AsyncIterator[Transaction]:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        yield Transaction(connection, lambda sql: connection.execute(sql.encode()))


@asynccontextmanager
async def psycopg_async_in_transaction(url: str) -> AsyncIterator[Transaction]:
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection, connection.transaction():
        yield Transaction(connection, lambda sql: connection.execute(sql.encode()))


@asynccontextmanager
async def psycopg_pipeline(url: str) -> AsyncIterator[Transaction]:
    with psycopg.connect(url) as connection, connection.pipeline():
        yield Transaction(connection, awaited(lambda sql: connection.execute(sql.encode())))


def of_sqlalchemy(url: str) -> str:
    return url.replace("postgresql://", "postgresql+psycopg://")


def engine_of(url: str, **options: Any) -> sqlalchemy.Engine:
    return sqlalchemy.create_engine(of_sqlalchemy(url), poolclass=NullPool, **options)


@asynccontextmanager
async def sqlalchemy_session(url: str) -> AsyncIterator[Transaction]:
    with Session(engine_of(url)) as session, session.begin():
        yield Transaction(session, awaited(lambda sql: session.execute(sqlalchemy.text(sql))))


@asynccontextmanager
async def sqlalchemy_scoped_session(url: str) -> AsyncIterator[Transaction]:
    scoped = scoped_session(sessionmaker(engine_of(url)))
    try:
        yield Transaction(scoped, awaited(lambda sql: scoped.execute(sqlalchemy.text(sql))))
        scoped.commit()
    finally:
        scoped.remove()


@asynccontextmanager
async def sqlalchemy_connection(url: str) -> AsyncIterator[Transaction]:
    with engine_of(url).connect() as connection:
        yield Transaction(connection, awaited(connection.exec_driver_sql))
        connection.commit()


@asynccontextmanager
async def sqlalchemy_async_session(url: str) -> AsyncIterator[Transaction]:
    engine = create_async_engine(of_sqlalchemy(url), poolclass=NullPool)
    async with AsyncSession(engine) as session, session.begin():
        yield Transaction(session, lambda sql: session.execute(sqlalchemy.text(sql)))


@asynccontextmanager
async def sqlalchemy_async_scoped_session(url: str) -> AsyncIterator[Transaction]:
    engine = create_async_engine(of_sqlalchemy(url), poolclass=NullPool)
    scoped = async_scoped_session(async_sessionmaker(engine), scopefunc=asyncio.current_task)
    try:
        yield Transaction(scoped, lambda sql: scoped.execute(sqlalchemy.text(sql)))
        await scoped.commit()
    finally:
        await scoped.remove()


@asynccontextmanager
async def sqlalchemy_async_connection(url: str) -> AsyncIterator[Transaction]:
    async with create_async_engine(of_sqlalchemy(url), poolclass=NullPool).connect() as connection:
        yield Transaction(connection, connection.exec_driver_sql)
        await connection.commit()


ASYNC = [psycopg_async, psycopg_async_in_transaction, sqlalchemy_async_session, sqlalchemy_async_connection]
ASYNC += [sqlalchemy_async_scoped_session]
SYNC = [psycopg_plain, psycopg_in_transaction, psycopg_pipeline]
SYNC += [sqlalchemy_session, sqlalchemy_scoped_session, sqlalchemy_connection]
every_kind = pytest.mark.parametrize("begins", SYNC + ASYNC, ids=lambda begins: begins.__name__)
