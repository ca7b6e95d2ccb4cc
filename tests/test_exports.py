"""What ``import arriero`` offers, and what it costs."""

import inspect
import json
import subprocess
import sys

import arriero

# Optional, or needed only once an App or a store is opened or a terminal is written to.
NOT_LOADED = (
    "httpx2",
    "starlette",
    "uvicorn",
    "pydantic",
    "rich",
    "click",
    "sqlite3",
    "psycopg",
    "arriero.cli",
    "arriero.testing",
    "arriero.client.assembly",
    "arriero.client.sync",
    "arriero.config",
    "arriero.core.alerts",
    "arriero.runtime.node",
    "arriero.store.sqlite",
    "arriero.store.postgres",
    "arriero.store.memory",
    "arriero.model.schedules",
    "cronsim",
    "zoneinfo",
    "pathlib",
    "urllib.parse",
)
# What `import arriero` costs is mostly its modules. Today's counts with a little slack: lower them with the code.
MODULES_MAX = 105
STRUCTS_MAX = 240


def test_public_names_are_sorted_unique_and_there() -> None:
    assert arriero.__all__ == sorted(set(arriero.__all__))
    assert [name for name in arriero.__all__ if not hasattr(arriero, name)] == []
    assert set(arriero.__all__) <= set(dir(arriero))


def test_every_public_class_of_errors_and_policies_is_exported_from_the_top() -> None:
    from arriero import errors

    raised = {name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, Exception)}
    assert raised - set(arriero.__all__) <= {"MutilatedExport"}


def test_every_public_class_and_function_says_what_it_is() -> None:
    offered = {name: getattr(arriero, name) for name in arriero.__all__}
    told = {name: value for name, value in offered.items() if isinstance(value, type) or inspect.isroutine(value)}
    assert len(told) > len(offered) / 2
    assert [name for name, value in told.items() if not (value.__doc__ or "").strip()] == []


COUNT_LOADED = """
import asyncio, json, sys
before = set(sys.modules)
import arriero
import msgspec
modules = set(sys.modules) - before
classes = [class_ for class_ in msgspec.Struct.__subclasses__() if class_.__module__.startswith("arriero")]
structs = sum(1 + len(class_.__subclasses__()) for class_ in classes)
print(json.dumps([sorted(modules), structs]))
"""


def test_importing_it_loads_nothing_optional_and_opens_nothing() -> None:
    ran = subprocess.run([sys.executable, "-c", COUNT_LOADED], capture_output=True, text=True, check=True)
    loaded, _ = json.loads(ran.stdout)
    assert [name for name in NOT_LOADED if name in loaded] == []
    assert ran.stderr == ""


def test_importing_it_loads_few_modules_and_makes_few_classes() -> None:
    ran = subprocess.run([sys.executable, "-c", COUNT_LOADED], capture_output=True, text=True, check=True)
    loaded, structs = json.loads(ran.stdout)
    assert len([name for name in loaded if name.partition(".")[0] == "arriero"]) <= MODULES_MAX
    assert structs <= STRUCTS_MAX


def test_names_that_are_loaded_when_used_are_there_at_once() -> None:
    program = "import arriero; print(arriero.Alert.__module__, arriero.SyncApp.__module__, hasattr(arriero, 'nothing'))"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["arriero.core.alerts", "arriero.client.sync", "False"]
