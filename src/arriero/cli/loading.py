"""Import the App named by ``MODULE:APP``, and find a workflow or step of it by name."""

import importlib
import os
import sys
import traceback
from types import ModuleType
from typing import Any

from ..client.app import App
from ..errors import ArrieroError, InvalidInput


def load_app(target: str) -> App:
    """Import the App; see ``import_module`` for where it is looked for.

    Raises: InvalidInput - no such module or App, or the module cannot be imported; DefinitionError from the module.
    """
    module_name, _, attribute = target.partition(":")
    if not module_name or not attribute:
        raise InvalidInput(f"{target!r} does not name an App; write MODULE:APP, like shop:app")
    module = import_module(module_name)
    found: Any = module
    for part in attribute.split("."):
        found = getattr(found, part, None)
    if not isinstance(found, App):
        what = f"there is no {target}" if found is None else f"{target} is no App, its type is {type(found).__name__}"
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
            where = f"from {folder}"
            if sys.flags.safe_path:
                where = (
                    f"without the current directory {folder}, as PYTHONSAFEPATH is set: name its folder in PYTHONPATH"
                )
            raise InvalidInput(f"there is no module {name!r}, looked for {where}") from error
        raise InvalidInput(f"module {name} cannot be imported: {error}{format_error_location(error)}") from error
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
