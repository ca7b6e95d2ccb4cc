"""Which state store a command works on, and how it is opened."""

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import click

from ..app import DEFAULT_STORE, App
from ..errors import InvalidInput
from ..store import existing_store, open_store
from ..store.base import StateStore

F = TypeVar("F", bound=Callable[..., Any])
MEMORY = "memory://"


def _given(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    if value == "":
        raise click.BadParameter("it is empty; name a store, or leave the option out", context, parameter)
    return value


def store_option(function: F) -> F:
    """``--store URL``."""
    text = "The state store, sqlite:///PATH (four slashes for an absolute path); else ARRIERO_STORE, else the default."
    return click.option("--store", metavar="URL", callback=_given, help=text)(function)


def json_option(function: F) -> F:
    """``--json``."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON, one value per line.")(function)


@asynccontextmanager
async def reading(given: str | None) -> AsyncIterator[StateStore]:
    """A store that is there, open. Raises InvalidInput, StoreError: it is not there, or no store."""
    store = existing_store(_shared(given or os.environ.get("ARRIERO_STORE") or DEFAULT_STORE))
    await store.open()
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def client(app: App, given: str | None) -> AsyncIterator[StateStore]:
    """The App open on its store, to submit and to ask. Raises InvalidInput, StoreError."""
    store = open_store(_shared(app._store_url(given)))
    await app._open(store)
    try:
        yield store
    finally:
        await app._close()


def _shared(url: str) -> str:
    if url == MEMORY:
        raise InvalidInput(f"store {url}: it lives inside one process and dies with it; name a file, sqlite:///PATH")
    return url
