"""The App and the state store of a command: chosen by all the places that may name them, loaded and opened."""

import importlib
import os
import re
import sys
import traceback
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from types import ModuleType
from typing import Any

import click

from ..client.app import App
from ..client.row_shapes import to_datetime
from ..config import DEFAULT, Configuration, load_configuration
from ..errors import ArrieroError, InvalidInput
from ..events import Event, HistoryNames, UnreadableEvent, describe_event, read_events_to_show
from ..model import HistoryRow
from ..store import MEMORY, existing_store, open_store
from ..store.state_store import StateStore
from .options import F
from .output import format_time

STORE_STREAM = 0  # of the history: what concerns no task
EVENTS_SHOWN_MAX = 10  # the last ones


async def load_store_stream(store: StateStore) -> list[HistoryRow]:
    """Load what the history says of no task. Raises StoreError."""
    return [row async for row in store.history(STORE_STREAM)]


def format_last_events(
    rows: Iterable[HistoryRow], is_meant: Callable[[Event | UnreadableEvent], bool]
) -> tuple[str, ...]:
    """Format the last events of one thing, each with its time.

    Args:
        is_meant: whether an event is about that thing.
    """
    found = [
        f"{format_time(to_datetime(row.at))} {describe_event(event, HistoryNames(row.actor))}"
        for row in rows
        for event in read_events_to_show(row)
        if is_meant(event)
    ]
    return tuple(found[-EVENTS_SHOWN_MAX:])


def load_app(target: str) -> App:
    """Import the App; see ``import_module`` for where it is looked for.

    Raises: InvalidInput - no such module or App, or the module cannot be imported; DefinitionError from the module.
    """
    module_name, _, attribute = target.partition(":")
    if not module_name or not attribute:
        raise InvalidInput(f"{target!r} does not name an App; write MODULE:APP, like shop:app")
    if module_name.endswith(".py"):
        dotted = module_name.removesuffix(".py").strip("./").replace("/", ".")
        raise InvalidInput(f"{module_name} is a file, and the App is named by its module: write {dotted}:{attribute}")
    module = import_module(module_name)
    found: Any = module
    for part in attribute.split("."):
        found = getattr(found, part, None)
    if not isinstance(found, App):
        what = (
            f"there is no {target}" if found is None else f"{target} is not an App, its type is {type(found).__name__}"
        )
        raise InvalidInput(f"{what}; Apps in {module_name}: {_list_apps(module)}")
    return found


def import_module(name: str) -> ModuleType:
    """Import a module of the user's. The current directory comes first on the import path, unless Python has the flag safe_path.

    Raises: InvalidInput - there is no such module, or it cannot be imported; ArrieroError from the module.
    """
    folder = os.getcwd()  # noqa: PTH109  # as the shell names it
    add_folder(folder)
    try:
        return importlib.import_module(name)
    except ArrieroError:
        raise
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            where = f"from {folder}; go to the folder that has {name.partition('.')[0]}.py, or name that folder in PYTHONPATH"
            if sys.flags.safe_path:
                where = (
                    f"without the current directory {folder}, as PYTHONSAFEPATH is set: name its folder in PYTHONPATH"
                )
            raise InvalidInput(f"there is no module {name!r}, looked for {where}") from error
        raise InvalidInput(
            f"module {name} cannot be imported: {error}{format_error_location(error)}; install that module where arriero is, or"
            " correct the import"
        ) from error
    except (Exception, SystemExit) as error:
        raise InvalidInput(
            f"module {name} cannot be imported: {type(error).__name__}: {error}{format_error_location(error)}"
        ) from error


def add_folder(folder: str) -> None:
    """Put a folder in front of the import path, unless Python was started so that no folder comes in front (PYTHONSAFEPATH)."""
    if not sys.flags.safe_path:
        sys.path.insert(0, folder)


def format_error_location(error: BaseException) -> str:
    """Format the line of the user's code that raised an error; empty for a syntax error, whose text has it."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "importlib" not in frame.filename]
    if isinstance(error, SyntaxError) or not frames or frames[-1].filename == __file__:
        return ""
    return f" ({frames[-1].filename}, line {frames[-1].lineno})"


def _list_apps(module: ModuleType) -> str:
    return ", ".join(sorted(name for name, value in vars(module).items() if isinstance(value, App))) or "none"


# A task of one step is named `step:NAME`.
_names_app = re.compile(r"(?!step:)[^\W\d][\w.]*:[^\W\d][\w.]*").fullmatch


class _AppArgument(click.Argument):
    """The App of a command, which may be left out: then the arguments behind it move up."""

    def handle_parse_result(
        self, ctx: click.Context, opts: Mapping[str, Any], args: list[str]
    ) -> tuple[Any, list[str]]:
        names = [param.name for param in ctx.command.params if isinstance(param, click.Argument) and param.name]
        values = [opts.get(name) for name in names]
        first, last = values[0], values[-1]
        is_one_missing = len(names) > 1 and not isinstance(last, str)  # what click has there depends on its release
        if is_one_missing and not (isinstance(first, str) and _names_app(first)):
            moved = dict(zip(names, [last, *values[:-1]], strict=True))
            assert isinstance(opts, dict)
            opts.update(moved)
        return super().handle_parse_result(ctx, opts, args)


def app_argument(function: F) -> F:
    """Add the argument ``[MODULE:APP]``, before all others; see ``load_chosen_app``."""
    return click.argument("app", metavar="[MODULE:APP]", required=False, cls=_AppArgument)(function)


def load_chosen_app(named: str | None, configuration: Configuration) -> App:
    """Load the App that a command was given, else the configured one. Raises InvalidInput - it cannot be loaded."""
    return load_configured_app(configuration) if named is None else load_app(named)


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
        raise InvalidInput(
            f"no App is named: type `arriero {_read_command_words()} MODULE:APP`, like shop:app, or set ARRIERO_APP, or app in"
            " arriero.toml"
        )
    if configuration.file is not None and origin == str(configuration.file):
        add_folder(str(configuration.file.parent))
    try:
        return load_app(configuration.app)
    except ArrieroError as error:
        without = "to look at a store without its App: --store URL"
        raise InvalidInput(f"app {configuration.app} ({origin}) cannot be loaded: {error}; {without}") from error


def _read_command_words() -> str:
    """Read the words of the command that runs, without the program's name."""
    context = click.get_current_context(silent=True)
    return "run" if context is None else context.command_path.partition(" ")[2]


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


def find_app_with_types(named: str | None, store: str | None) -> App | None:
    """Load the App whose code declares the types that a value is checked against, if there is one.

    Args:
        named: ``MODULE:APP``; None: the configured one. Returns: None if no App is named anywhere.
    Raises: InvalidInput - it cannot be loaded.
    """
    if named is not None:
        return load_app(named)
    configuration = load_configuration(flags={"store": store})
    return load_configured_app(configuration) if configuration.app else None


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
