"""Choose the state store of a command by all the places that may name one, and open it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ..client.app import App
from ..config import DEFAULT, MEMORY, Configuration, load_configuration
from ..errors import ArrieroError, InvalidInput
from ..store import existing_store, open_store
from ..store.state_store import StateStore
from .loading import add_folder, load_app


def load_store_configuration(store: str | None) -> Configuration:
    """Load the settings for a command that was given no App.

    Where only an App's own code may name the store, the configured App is loaded: else the command would look into
    another store than the App works on.
    Raises: InvalidInput - settings that cannot be used, or an App that cannot be loaded.
    """
    configuration = load_configuration(flags={"store": store})
    if not configuration.app or configuration.origin("store") != DEFAULT:
        return configuration
    return load_configured_app(configuration).session.configure()


def load_configured_app(configuration: Configuration) -> App:
    """Load the App that the settings name; one that ``arriero.toml`` names is also looked for beside the file.

    Raises: InvalidInput - none is named, or it cannot be loaded.
    """
    origin = configuration.origin("app")
    if not configuration.app:
        raise InvalidInput("no App is named; give MODULE:APP, or set ARRIERO_APP, or app in arriero.toml")
    if configuration.file is not None and origin == str(configuration.file):
        add_folder(str(configuration.file.parent))
    try:
        return load_app(configuration.app)
    except ArrieroError as error:
        without = "to look at a store without its App: --store URL"
        raise InvalidInput(f"app {configuration.app} ({origin}) cannot be loaded: {error}; {without}") from error


def load_app_with_types(named: str | None, store: str | None, option: str) -> App:
    """Load the App whose code declares the types that the value of an option is checked against.

    Args:
        named: ``MODULE:APP``; None: the configured one.
    Raises: InvalidInput - none is named anywhere, or it cannot be loaded.
    """
    if named is not None:
        return load_app(named)
    configuration = load_configuration(flags={"store": store})
    if not configuration.app:
        raise InvalidInput(
            f"{option} is checked against the types in your code: name the App with --app MODULE:APP, or set ARRIERO_APP "
            "or app in arriero.toml"
        )
    return load_configured_app(configuration)


@asynccontextmanager
async def open_store_to_read(given: str | None) -> AsyncIterator[StateStore]:
    """Open a store that exists. Raises InvalidInput, StoreError."""
    store = existing_store(refuse_memory_store(load_store_configuration(given).store))
    await store.open()
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def open_client(app: App, given: str | None) -> AsyncIterator[StateStore]:
    """Open the App on its store, to submit and to ask. Raises InvalidInput, StoreError."""
    url = app.session.configure(store=given).store
    async with _open_app(app, open_store(refuse_memory_store(url))) as store:
        yield store


@asynccontextmanager
async def open_operator(app: App | None, store: str | None) -> AsyncIterator[App]:
    """Open an App on a store that exists, to act on its tasks; nothing runs in it.

    ``app``: None: an App without code, which is enough to act on tasks.
    Raises: InvalidInput, StoreError.
    """
    configuration = load_store_configuration(store) if app is None else app.session.configure(store=store)
    app = App("operator") if app is None else app
    app.session.configuration = configuration
    async with _open_app(app, existing_store(refuse_memory_store(configuration.store))):
        yield app


@asynccontextmanager
async def _open_app(app: App, store: StateStore) -> AsyncIterator[StateStore]:
    await app.session.open(store)
    try:
        yield store
    finally:
        await app.session.close()


def refuse_memory_store(url: str) -> str:
    """Return the URL of a store that outlives its process. Raises InvalidInput: it does not."""
    if url == MEMORY:
        raise InvalidInput(
            f"store {url}: it lives inside one process and dies with it; name a file, sqlite:///PATH, or a server, "
            "postgresql://USER@HOST/DATABASE"
        )
    return url
