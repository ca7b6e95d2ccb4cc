"""What ``import arriero`` offers, and what it costs."""

import inspect
import json
import subprocess
import sys

import arriero

# Optional, or needed only once a store is opened or a terminal is written to.
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
)


def test_public_names_are_sorted_unique_and_there() -> None:
    assert arriero.__all__ == sorted(set(arriero.__all__))
    assert [name for name in arriero.__all__ if not hasattr(arriero, name)] == []


def test_every_public_class_of_errors_and_policies_is_exported_from_the_top() -> None:
    from arriero import errors

    raised = {name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, Exception)}
    assert raised - set(arriero.__all__) <= {"MutilatedExport"}


def test_every_public_class_and_function_says_what_it_is() -> None:
    offered = {name: getattr(arriero, name) for name in arriero.__all__}
    told = {name: value for name, value in offered.items() if isinstance(value, type) or inspect.isroutine(value)}
    assert len(told) > len(offered) / 2
    assert [name for name, value in told.items() if not (value.__doc__ or "").strip()] == []


def test_importing_it_loads_nothing_optional_and_opens_nothing() -> None:
    program = "import sys, json, arriero; print(json.dumps(sorted(sys.modules)))"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = set(json.loads(ran.stdout))
    assert [name for name in NOT_LOADED if name in loaded] == []
    assert ran.stderr == ""
