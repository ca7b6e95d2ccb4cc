"""House rules as tests: imports go downward only, the core knows no time and no chance, and nobody unpickles."""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from source_modules import Module, for_every_module, list_modules

# From the lowest to the highest. A module may import from its own layer and from those below it.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("model", "errors", "events", "payloads", "system", "text", "version"),
    ("inspection",),
    ("declare",),
    ("lint",),
    ("core",),
    ("store",),
    ("audit",),
    ("explain",),
    ("tracing",),
    ("runtime",),
    ("leases",),
    ("config",),
    ("client", "http", "idempotency", "json_log"),
    ("operations",),
    ("metrics",),
    ("server",),
    ("__init__", "__main__", "cli", "testing"),
)
# Nothing of these may be imported by those below: who imports them is a user's program, not a part of arriero.
TOPMOST = ("cli", "testing", "__main__")

IMPURE_MODULES = ("time", "secrets", "threading", "socket", "subprocess", "os", "pathlib", "logging", "sqlite3", "io")
IMPURE_CALLS = (
    "uuid.uuid1",
    "uuid.uuid4",
    "asyncio.sleep",
    "datetime.now",
    "datetime.utcnow",
    "datetime.datetime.now",
    "open",
    "print",
    "input",
)
SEEDED = ("random.Random",)  # with a seed: the same draws in every replay
UNSAFE_MODULES = ("pickle", "marshal", "shelve", "dill", "cloudpickle")
UNSAFE_CALLS = ("eval", "exec", "compile", "__import__")
DOORS = ("time", "random", "secrets", "threading")


def _type_only(module: Module) -> set[ast.AST]:
    """Imports below ``if TYPE_CHECKING``: they do not happen."""
    tests = [node for node in module.nodes if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)]
    return {inner for test in tests for statement in test.body for inner in ast.walk(statement)}


def _imports_of_arriero(module: Module) -> Iterator[tuple[str, ast.AST]]:
    """Parts of arriero a module imports (``core``, ``model``, ...), wherever the import stands."""
    for node in module.nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                words = alias.name.split(".")
                if words[0] == "arriero":
                    yield (words[1] if len(words) > 1 else "__init__"), node
        elif isinstance(node, ast.ImportFrom):
            yield from ((part, node) for part in _imported_parts(module, node))


def _imported_parts(module: Module, node: ast.ImportFrom) -> list[str]:
    words = module.find_source(node)
    if words is None:
        return []
    return [words[0]] if words else [_part_named(alias.name) for alias in node.names]


def _part_named(name: str) -> str:
    known = {part for layer in LAYERS for part in layer}
    return name if name in known else "__init__"


def _foreign_imports(module: Module) -> set[str]:
    names: set[str] = set()
    for node in module.nodes:
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            names.add(node.module.split(".")[0])
    return names


def _level(part: str) -> int:
    (level,) = [number for number, layer in enumerate(LAYERS) if part in layer]
    return level


def _calls(module: Module) -> Iterator[tuple[str, ast.Call]]:
    for node in module.nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            yield ast.unparse(node.func), node


def test_no_two_classes_share_a_name() -> None:
    places: dict[str, list[str]] = {}
    for module in list_modules():
        for node in module.nodes:
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(module.name)
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_every_module_has_its_layer() -> None:
    known = {part for layer in LAYERS for part in layer}
    assert {module.part for module in list_modules()} - known == set()


@for_every_module()
def test_imports_go_downward_only(module: Module) -> None:
    type_only = _type_only(module)
    upward = [
        f"{part} (line {getattr(node, 'lineno', 0)})"
        for part, node in _imports_of_arriero(module)
        if node not in type_only and _level(part) > _level(module.part)
    ]
    assert upward == []


@for_every_module()
def test_the_edges_are_imported_by_nobody_but_themselves(module: Module) -> None:
    if module.part in TOPMOST:
        return
    assert [part for part, _ in _imports_of_arriero(module) if part in TOPMOST] == []


def test_what_is_installed_imports_nothing_that_stays_in_the_repository() -> None:
    assert [module.name for module in list_modules() if _foreign_imports(module) & {"lab", "tests", "bench"}] == []


@for_every_module("model")
def test_the_model_imports_plain_data_alone(module: Module) -> None:
    assert {part for part, _ in _imports_of_arriero(module)} <= {"model", "errors", "payloads", "text"}


@for_every_module("audit")
def test_the_audit_shares_plain_data_with_the_core_and_no_decision(module: Module) -> None:
    assert {part for part, _ in _imports_of_arriero(module)} <= {"audit", *LAYERS[0]}


def test_the_store_uses_no_code_of_users() -> None:
    assert [
        module.name
        for module in list_modules("store")
        if "declare" in {part for part, _ in _imports_of_arriero(module)}
    ] == []


@for_every_module("core")
def test_the_core_reads_no_clock_draws_no_number_and_opens_nothing(module: Module) -> None:
    assert _foreign_imports(module) & set(IMPURE_MODULES) == set()
    calls = list(_calls(module))
    assert [name for name, _ in calls if name in IMPURE_CALLS] == []
    drawn = [(name, node) for name, node in calls if name.startswith("random.")]
    assert [name for name, _ in drawn if name not in SEEDED] == []
    for name, node in drawn:
        assert node.args, f"{name} without a seed would draw from the machine"
    for name, node in calls:
        if name == "uuid.UUID":
            assert [keyword.arg for keyword in node.keywords if keyword.arg == "int"], (
                "a UUID of nothing drawn by the task"
            )


def test_only_replay_draws_at_all() -> None:
    drawing = [module.name for module in list_modules("core") if _foreign_imports(module) & {"random", "uuid"}]
    assert drawing in ([], ["core.replay"])


PROGRAM_OF_A_CHILD = "runtime.child_main"  # behind the port that starts it


def test_the_runtime_s_doors_of_time_and_chance_are_its_ports() -> None:
    elsewhere = {
        module.name: sorted(_foreign_imports(module) & set(DOORS))
        for module in list_modules("runtime")
        if module.name not in ("runtime.ports", PROGRAM_OF_A_CHILD)
    }
    assert {name: doors for name, doors in elsewhere.items() if doors} == {}
    for module in list_modules("runtime"):
        if module.name != "runtime.ports":
            assert [
                name for name, _ in _calls(module) if name in ("asyncio.sleep", "datetime.now", "uuid.uuid4")
            ] == [], module.name


@for_every_module()
def test_nothing_is_unpickled_or_run_from_data(module: Module) -> None:
    assert _foreign_imports(module) & set(UNSAFE_MODULES) == set()
    assert [name for name, _ in _calls(module) if name in UNSAFE_CALLS] == []


@for_every_module()
def test_every_module_says_what_it_is(module: Module) -> None:
    assert ast.get_docstring(module.tree), module.name


# Large files and classes are hard to enter. What starts PostgreSQL for users' tests is a tool of its own.
FILE_LINES_MAX, CLASS_METHODS_MAX, FUNCTION_LINES_MAX = 500, 30, 70
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@for_every_module()
def test_no_file_class_or_function_is_too_large_to_be_read_at_once(module: Module) -> None:
    assert len(module.path.read_text().splitlines()) <= FILE_LINES_MAX
    for node in module.nodes:
        if isinstance(node, FUNCTIONS):
            assert (node.end_lineno or 0) - node.lineno < FUNCTION_LINES_MAX, node.name
        elif isinstance(node, ast.ClassDef) and module.part != "testing":
            assert sum(isinstance(inner, FUNCTIONS) for inner in node.body) <= CLASS_METHODS_MAX, node.name


def test_no_two_test_modules_have_one_name() -> None:
    """pytest imports a test by the name of its file: of two files of one name it collects the first alone."""
    names = Counter(path.name for path in Path(__file__).parent.rglob("*.py") if path.name != "conftest.py")
    assert [name for name, count in names.items() if count > 1] == []
