"""Which state store a command works on, by all the places that may name one, and how it is opened."""

import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import click

from ..app import App
from ..config import DEFAULT, MEMORY, Configuration, load
from ..errors import ArrieroError, InvalidInput
from ..store import existing_store, open_store
from ..store.base import StateStore
from .loading import load_app

SHARED = "name a file, sqlite:///PATH, or a server, postgresql://USER@HOST/DATABASE"
F = TypeVar("F", bound=Callable[..., Any])


def _given(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    if value == "":
        raise click.BadParameter("it is empty; name a store, or leave the option out", context, parameter)
    return value


def store_option(function: F) -> F:
    """``--store URL``."""
    text = (
        "The state store, sqlite:///PATH (four slashes for an absolute path) or postgresql://USER@HOST/DATABASE; else "
        "ARRIERO_STORE, else arriero.toml, else the App's, else the default. `arriero config` tells which it is."
    )
    return click.option("--store", metavar="URL", callback=_given, help=text)(function)


def json_option(function: F) -> F:
    """``--json``."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON, one value per line.")(function)


def configured(store: str | None) -> Configuration:
    """The settings for a command that was given no App.

    If nothing else names a store, but the settings name an App, the App is loaded, for its own store: else the command
    would look into another one than the App works on.
    Raises: InvalidInput - settings that cannot be used, or an App that cannot be loaded.
    """
    configuration = load(flags={"store": store})
    if not configuration.app or configuration.origin("store") != DEFAULT:
        return configuration
    return load(app_store=configured_app(configuration)._given_store)


def configured_app(configuration: Configuration) -> App:
    """The App that the settings name; one that ``arriero.toml`` names is looked for beside the file, too.

    Raises: InvalidInput - none is named, or it cannot be loaded.
    """
    origin = configuration.origin("app")
    if not configuration.app:
        raise InvalidInput("no App is named; give MODULE:APP, or set ARRIERO_APP, or app in arriero.toml")
    if configuration.file is not None and origin == str(configuration.file):
        sys.path.insert(0, str(configuration.file.parent))
    try:
        return load_app(configuration.app)
    except ArrieroError as error:
        without = "to look at a store without its App: --store URL"
        raise InvalidInput(f"app {configuration.app} ({origin}) cannot be loaded: {error}; {without}") from error


@asynccontextmanager
async def reading(given: str | None) -> AsyncIterator[StateStore]:
    """A store that is there, open. Raises InvalidInput, StoreError: it is not there, or no store."""
    store = existing_store(_shared(configured(given).store))
    await store.open()
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def client(app: App, given: str | None) -> AsyncIterator[StateStore]:
    """The App open on its store, to submit and to ask. Raises InvalidInput, StoreError."""
    store = open_store(_shared(load(app_store=app._given_store, flags={"store": given}).store))
    await app._open(store)
    try:
        yield store
    finally:
        await app._close()


def _shared(url: str) -> str:
    if url == MEMORY:
        raise InvalidInput(f"store {url}: it lives inside one process and dies with it; {SHARED}")
    return url
