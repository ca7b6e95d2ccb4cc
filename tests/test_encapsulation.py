"""House rules as tests: nobody reads another object's private attributes, and no modules import each other in a circle."""

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter

import pytest
from source_modules import Module, for_every_module, list_modules

OWN = ("self", "cls")

# Where the standard library has no public way, or is public in spite of its name.
STANDARD_LIBRARY = {
    "asyncio._get_running_loop": "as get_running_loop, but None where no loop runs, which costs no exception",
    "asyncio.Handle._run": "the frame below which a traceback is not ours",
    "events._get_running_loop": "the loop of workflow code runs inside of another one",
    "events._set_running_loop": "the same",
    "getattr(of, '_is_protocol', False)": "typing.is_protocol comes with Python 3.13",
    "getattr(of, '_fields', ())": "public: the fields of a NamedTuple",
    "handle._run": "a loop of our own runs its handles",
    "os._exit": "public: ends the process at once",
    "sys._current_frames": "public: looks where a thread stands",
    "sys._getframe": "public: looks where the caller stands",
    "task._log_destroy_pending": "asyncio has no public way to drop a task in silence",
    "task._fut_waiter": "asyncio has no public way to say what a task waits for",
    "tasks._enter_task": "the loop of workflow code runs inside of another one",
    "tasks._leave_task": "the same",
    "threading._register_atexit": "atexit comes too late to close what needs a pool of threads",
}
# By module and expression, with the reason.
EXCEPTIONS = {
    ("testing.postgres.server", "server._copy"): "a class method that makes an instance of its own class",
    ("testing.postgres.server", "server._launch"): "the same",
    ("testing.postgres.server", "server._remove"): "the same",
}


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def _is_own(value: ast.expr) -> bool:
    if isinstance(value, ast.Call):
        value = value.func
        return isinstance(value, ast.Name) and value.id == "super"
    return isinstance(value, ast.Name) and value.id in OWN


def _foreign_private_reads(module: Module) -> Iterator[str]:
    """Expressions that take a private attribute of something other than the object whose code it is."""
    for node in module.nodes:
        if isinstance(node, ast.Attribute) and _is_private(node.attr) and not _is_own(node.value):
            yield ast.unparse(node)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("getattr", "setattr"):
            name = node.args[1]
            if isinstance(name, ast.Constant) and _is_private(str(name.value)) and not _is_own(node.args[0]):
                yield ast.unparse(node)


def _imported_private_names(module: Module) -> Iterator[str]:
    for node in module.nodes:
        if isinstance(node, ast.ImportFrom) and module.find_source(node) is not None:
            yield from (alias.name for alias in node.names if _is_private(alias.name))


@for_every_module()
def test_nobody_reads_private_attributes_of_another_object(module: Module) -> None:
    reads = {read for read in _foreign_private_reads(module) if read not in STANDARD_LIBRARY}
    assert {read for read in reads if (module.name, read) not in EXCEPTIONS} == set()


def test_every_exception_is_still_needed() -> None:
    reads = {(module.name, read) for module in list_modules() for read in _foreign_private_reads(module)}
    assert set(EXCEPTIONS) - reads == set()
    assert set(STANDARD_LIBRARY) - {read for _, read in reads} == set()


@for_every_module()
def test_nobody_imports_private_names_of_another_module(module: Module) -> None:
    assert list(_imported_private_names(module)) == []


# --- circles
def _imports(module: Module, names: set[str]) -> set[str]:
    """Modules of arriero that a module imports: at its top, inside functions, and for types only."""
    found: set[str | None] = set()

    def find(words: list[str]) -> str | None:
        """The module of a dotted name; None if it is a name inside a module."""
        name = ".".join(words) or "__init__"
        return name if name in names else None

    for node in module.nodes:
        if isinstance(node, ast.Import):
            dotted = [alias.name.split(".") for alias in node.names]
            found |= {find(words[1:]) for words in dotted if words[0] == "arriero"}
        elif isinstance(node, ast.ImportFrom):
            base = module.find_source(node)
            if base is not None:
                found |= {find([*base, alias.name]) or find(base) for alias in node.names}
    return {name for name in found if name is not None and name != module.name}


def test_no_modules_import_each_other_in_a_circle() -> None:
    names = {module.name for module in list_modules()}
    try:
        TopologicalSorter({module.name: _imports(module, names) for module in list_modules()}).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))
