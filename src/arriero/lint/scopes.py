"""The names that a function binds, and what each stands for: a local name hides a global one."""

import ast
from collections.abc import Iterable, Iterator
from enum import Enum
from typing import NamedTuple

from .sources import FUNCTION_NODES, FunctionNode, list_children

COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


class Bound(Enum):
    """The kind of statement that gave a name its value."""

    VALUE = "value"  # of the expression ``node``
    TYPE = "type"  # declared by the annotation ``node``
    MODULE = "module"  # an import of ``text``
    MEMBER = "member"  # an import of a name from a module, ``module:name``
    OTHER = "other"  # not known


class Binding(NamedTuple):
    """One of the places where a name is bound."""

    how: Bound
    node: ast.expr | None = None
    text: str = ""


_OTHER = Binding(Bound.OTHER)


_BINDING = (
    *(
        ast.Import,
        ast.ImportFrom,
        ast.Assign,
        ast.AnnAssign,
        ast.AugAssign,
        ast.NamedExpr,
        ast.withitem,
        ast.ExceptHandler,
    ),
    *(ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.For, ast.AsyncFor, ast.comprehension),
    *(ast.MatchAs, ast.MatchStar, ast.MatchMapping),
)


class NameScope:
    """The names that a function, a class or a comprehension binds, inside of the scope ``parent``."""

    def __init__(self, parent: "NameScope | None", *, is_class: bool = False) -> None:
        self.parent = parent
        self.is_class = is_class
        self.names: dict[str, list[Binding]] = {}
        self._elsewhere: set[str] = set()  # of ``global`` and ``nonlocal``

    def find(self, name: str) -> "tuple[NameScope, list[Binding]] | None":
        """Find the scope that binds a name, as Python does; None: none inside of the function."""
        scope: NameScope | None = self
        while scope is not None:
            if name in scope.names and (scope is self or not scope.is_class):
                return scope, scope.names[name]
            scope = scope.parent
        return None

    def bind(self, name: str, binding: Binding) -> None:
        """Note a place that binds a name."""
        if name not in self._elsewhere:
            self.names.setdefault(name, []).append(binding)

    def bind_parameters(self, node: FunctionNode) -> None:
        """Bind the parameters of a function."""
        arguments = node.args
        for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
            self.bind(one.arg, Binding(Bound.TYPE, one.annotation) if one.annotation is not None else _OTHER)
        for rest in (arguments.vararg, arguments.kwarg):
            if rest is not None:
                self.bind(rest.arg, _OTHER)

    def bind_body(self, statements: Iterable[ast.AST]) -> None:
        """Bind what these statements bind, but not what functions inside of them do."""
        nodes = list(_walk_own(statements))
        for node in nodes:
            if isinstance(node, ast.Global | ast.Nonlocal):
                self._elsewhere.update(node.names)
        for node in nodes:
            if isinstance(node, _BINDING):
                self._bind_node(node)

    def _bind_node(self, node: ast.AST) -> None:
        if isinstance(node, ast.Import):
            for alias in node.names:
                name = alias.asname or alias.name.partition(".")[0]
                self.bind(name, Binding(Bound.MODULE, text=alias.name if alias.asname else name))
                if not alias.asname and name != alias.name:
                    self.bind(name, Binding(Bound.MODULE, text=f"{alias.name}:"))  # loads the inner module, too
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            for alias in node.names:
                self.bind(alias.asname or alias.name, Binding(Bound.MEMBER, text=f"{module}:{alias.name}"))
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                self.bind_target(target, node.value)
        elif isinstance(node, ast.AnnAssign):
            if isinstance(node.target, ast.Name):
                self.bind(node.target.id, Binding(Bound.TYPE, node.annotation))
                if node.value is not None:
                    self.bind_target(node.target, node.value)
        elif isinstance(node, ast.NamedExpr):
            self.bind_target(node.target, node.value)
        elif isinstance(node, ast.withitem) and node.optional_vars is not None:
            self.bind_target(node.optional_vars, node.context_expr)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) or (
            isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name
        ):
            self.bind(node.name or "", _OTHER)
        elif isinstance(node, ast.MatchMapping) and node.rest:
            self.bind(node.rest, _OTHER)
        elif isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
            self.bind_target(node.target, None)
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            self.bind(node.target.id, _OTHER)

    def bind_target(self, target: ast.expr, value: ast.expr | None) -> None:
        """Bind the names of an assignment's left side."""
        if isinstance(target, ast.Name):
            self.bind(target.id, _OTHER if value is None else Binding(Bound.VALUE, value))
        elif isinstance(target, ast.Starred):
            self.bind_target(target.value, None)
        elif isinstance(target, ast.Tuple | ast.List):
            whole = isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(target.elts)
            parts = value.elts if isinstance(value, ast.Tuple | ast.List) and whole else [None] * len(target.elts)
            for inner, part in zip(target.elts, parts, strict=True):
                self.bind_target(inner, part)


def _walk_own(statements: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Walk through statements, into no function and no class. Of a comprehension only ``:=`` binds outside of it."""
    waiting = list(statements)
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, COMPREHENSIONS):
            yield from (inner for inner in ast.walk(node) if isinstance(inner, ast.NamedExpr))
        elif not isinstance(node, (*FUNCTION_NODES, ast.ClassDef)):
            waiting += list_children(node)
