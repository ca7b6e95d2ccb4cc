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
    """Import the App; the current directory comes first on the import path.

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
    sys.path.insert(0, str(os.getcwd()))  # noqa: PTH109  # as the shell names it
    try:
        return importlib.import_module(name)
    except ArrieroError:
        raise
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise InvalidInput(f"there is no module {name!r}, looked for from {os.getcwd()}") from error  # noqa: PTH109
        raise InvalidInput(f"module {name} cannot be imported: {error}{format_error_location(error)}") from error
    except (Exception, SystemExit) as error:
        raise InvalidInput(
            f"module {name} cannot be imported: {type(error).__name__}: {error}{format_error_location(error)}"
        ) from error


def format_error_location(error: BaseException) -> str:
    """Format the line of the user's code that raised an error; empty for a syntax error, whose text has it."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "importlib" not in frame.filename]
    if isinstance(error, SyntaxError) or not frames or frames[-1].filename == __file__:
        return ""
    return f" ({frames[-1].filename}, line {frames[-1].lineno})"


def _list_apps(module: ModuleType) -> str:
    return ", ".join(sorted(name for name, value in vars(module).items() if isinstance(value, App))) or "none"
