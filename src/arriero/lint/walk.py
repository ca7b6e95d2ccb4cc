"""A walk through one function: the calls in it that workflow code must not make, and the functions that it may call."""

import ast
import builtins
import functools
import importlib.util
import types
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from .rules import ORDER, Found, Registry, find_by_name
from .scopes import COMPREHENSIONS, Binding, Bound, Comprehension, NameScope
from .sources import FUNCTION_NODES, FunctionNode, SourceFile, list_children
from .values import (
    Kind,
    Reachable,
    Value,
    Values,
    describe_type,
    evaluate_type,
    find_attribute,
    find_inherited,
    find_item,
    find_result,
    import_lazily,
    list_methods,
    list_reachable,
    live,
)

NESTING_MAX = 50  # of expressions that are followed from name to name
_ENTERED = ("__enter__", "__exit__", "__aenter__", "__aexit__")
_ITERATED = ("__iter__", "__next__", "__aiter__", "__anext__")


class Hit(NamedTuple):
    """One call that is a fault, and where it stands."""

    line: int
    column: int
    found: Found


class Walk:
    """The walk through one function. It fills ``hits``, ``calls``, and ``failures``: imports that cannot be followed."""

    def __init__(self, of: Reachable, file: SourceFile, node: FunctionNode, registry: Registry) -> None:
        self.hits: dict[tuple[int, int, str], Hit] = {}
        self._calls: dict[tuple[int, int], Reachable] = {}
        self.failures: list[str] = []
        self._of = of
        self._file = file
        self._registry = registry
        self._names = _read_closure(of.function)
        self._first = next(iter((*node.args.posonlyargs, *node.args.args)), None)
        self._open: set[int] = set()  # expressions that are being resolved
        self._known: dict[int, Values] = {}  # what expressions were resolved to
        self._depth = 0
        self._enter_function(node, None)

    # --- the walk
    def _enter_function(self, node: FunctionNode, parent: NameScope | None) -> None:
        scope = NameScope(parent)
        scope.bind_parameters(node)
        body = [node.body] if isinstance(node, ast.Lambda) else node.body
        scope.bind_body(body)
        for one in body:
            self._visit(one, scope)

    def _visit(self, node: ast.AST, scope: NameScope) -> None:
        if isinstance(node, FUNCTION_NODES):
            self._visit_all([*node.args.defaults, *filter(None, node.args.kw_defaults)], scope)
            self._visit_all([] if isinstance(node, ast.Lambda) else node.decorator_list, scope)
            self._enter_function(node, scope)
        elif isinstance(node, ast.ClassDef):
            inner = NameScope(scope, is_class=True)
            inner.bind_body(node.body)
            self._visit_all([*node.decorator_list, *node.bases, *(one.value for one in node.keywords)], scope)
            self._visit_all(node.body, inner)
        elif isinstance(node, COMPREHENSIONS):
            self._visit_comprehension(node, scope)
        elif isinstance(node, ast.AnnAssign):
            self._visit_all([node.target, *([node.value] if node.value else [])], scope)
        elif isinstance(node, ast.If) and _is_for_type_checkers(node.test):
            self._visit_all(node.orelse, scope)
        else:
            self._look_at(node, scope)
            self._visit_all(list_children(node), scope)

    def _visit_all(self, nodes: Any, scope: NameScope) -> None:
        for node in nodes:
            self._visit(node, scope)

    def _visit_comprehension(self, node: Comprehension, scope: NameScope) -> None:
        inner = NameScope(scope)
        for one in node.generators:
            inner.bind_target(one.target, None)
        for one in node.generators:
            self._look_at(one, inner)
            self._visit_all([one.iter, *one.ifs], inner)
            if not isinstance(node, ast.SetComp | ast.DictComp) and _awaits([node]):
                self._look_at_order(one.iter, inner)
        self._visit_all([node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt], inner)

    def _look_at(self, node: ast.AST, scope: NameScope) -> None:
        if isinstance(node, ast.Call):
            self._look_at_call(node, scope)
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
            for value in self.resolve(node, scope):
                found = self._find_rule(value)
                if found is not None and not _is_class(value) and not found.rule.depends_on_arguments:
                    self._hit(node, found)
                self._note_calls(list_reachable(value, is_called=False))
        elif isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
            self._follow_methods(node.iter, _ITERATED, scope)
            if isinstance(node, ast.For) and _awaits(node.body):
                self._look_at_order(node.iter, scope)
        elif isinstance(node, ast.Await) and isinstance(node.value, ast.Call):
            for one in node.value.args:  # gather(*(ship(item) for item in items))
                if isinstance(one, ast.Starred) and isinstance(one.value, ast.GeneratorExp | ast.ListComp):
                    self._look_at_order(one.value.generators[0].iter, scope)
        elif isinstance(node, ast.withitem):
            self._follow_methods(node.context_expr, _ENTERED, scope)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                self._resolve_name((alias.asname or alias.name).partition(".")[0], scope)

    def _look_at_call(self, node: ast.Call, scope: NameScope) -> None:
        for value in self.resolve(node.func, scope):
            found = self._find_rule(value)
            is_named = value.kind is not Kind.INSTANCE
            if found is not None and is_named and found.rule.forbids(node):
                self._hit(node.func, found)
            elif found is None:
                self._note_calls(list_reachable(value, is_called=True))
                self._look_at_defaults(node, value)

    def _look_at_defaults(self, node: ast.Call, value: Value) -> None:
        """Look at ``default_factory`` of the fields that a call of a class leaves out."""
        if value.kind is not Kind.LIVE or not isinstance(value.about, type):
            return
        given = {one.arg for one in node.keywords}
        if None in given or any(isinstance(one, ast.Starred) for one in node.args):
            return
        for place, (name, factory) in enumerate(_list_factories(value.about)):
            if factory is None or name in given or place < len(node.args):
                continue
            found = self._find_rule(live(factory))
            if found is not None and found.rule.deciding is None:
                self._hit(node.func, Found(f"{value.about.__name__}.{name} by {found.name}", found.rule))
            self._note_calls(list_reachable(live(factory), is_called=True))

    def _look_at_order(self, iterated: ast.expr, scope: NameScope) -> None:
        is_shown = isinstance(iterated, ast.Set) and len(iterated.elts) > 1
        texts = [one for one in iterated.elts if isinstance(one, ast.Constant)] if isinstance(iterated, ast.Set) else []
        if is_shown and any(isinstance(one.value, str | bytes) for one in texts):
            self._hit(iterated, Found("a set of texts", ORDER))
        if isinstance(iterated, ast.Name | ast.Attribute):
            for value in self.resolve(iterated, scope):
                about: Any = value.about if value.kind is Kind.LIVE else None
                if type(about) in (set, frozenset) and len(about) > 1 and any(isinstance(one, str) for one in about):
                    self._hit(iterated, Found("a set of texts", ORDER))

    def _follow_methods(self, node: ast.expr, names: tuple[str, ...], scope: NameScope) -> None:
        for value in self.resolve(node, scope):
            about = value.about if value.kind is Kind.INSTANCE else type(value.about)
            if value.kind in (Kind.INSTANCE, Kind.LIVE):
                self._note_calls(list_methods(about, *names))

    def _find_rule(self, value: Value) -> Found | None:
        if value.kind is Kind.LIVE:
            return self._registry.find_by_object(value.about)
        if value.kind is Kind.METHOD:
            return self._registry.find_by_method(value.owner[0], value.name)
        return find_by_name(value.about) if value.kind is Kind.NAME else None

    def _note_calls(self, found: Iterable[Reachable]) -> None:
        for one in found:
            self._calls.setdefault(one.identify(), one)

    @property
    def calls(self) -> Iterable[Reachable]:
        """The functions that it may call, each once."""
        return self._calls.values()

    def _hit(self, node: ast.expr, found: Found) -> None:
        hit = Hit(node.lineno, self._file.find_column(node), found)
        self.hits.setdefault((hit.line, hit.column, found.name), hit)

    # --- the values of expressions
    def resolve(self, node: ast.expr | None, scope: NameScope) -> Values:
        """Find the values that an expression may have; none: they are not known."""
        if node is None or id(node) in self._open or self._depth > NESTING_MAX:
            return ()
        if id(node) in self._known:
            return self._known[id(node)]
        is_whole = not self._open  # else a cycle of names may have cut it short
        self._open.add(id(node))
        self._depth += 1
        try:
            found = tuple(self._list_values(node, scope))
            if is_whole:
                self._known[id(node)] = found
            return found
        finally:
            self._depth -= 1
            self._open.discard(id(node))

    def _list_values(self, node: ast.expr, scope: NameScope) -> Iterator[Value]:
        if isinstance(node, ast.Name):
            yield from self._resolve_name(node.id, scope)
        elif isinstance(node, ast.Attribute):
            yield from self._resolve_attribute(node, scope)
        elif isinstance(node, ast.Call):
            yield from self._resolve_call(node, scope)
        elif isinstance(node, ast.Await | ast.NamedExpr | ast.Starred):
            yield from self.resolve(node.value, scope)
        elif isinstance(node, ast.IfExp):
            yield from (*self.resolve(node.body, scope), *self.resolve(node.orelse, scope))
        elif isinstance(node, ast.BoolOp):
            for one in node.values:
                yield from self.resolve(one, scope)
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            yield from self.resolve(node.left, scope)  # of a path
        elif isinstance(node, ast.Subscript):
            for value in self.resolve(node.value, scope):
                yield from find_item(value, node.slice)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield Value(Kind.INSTANCE, str)

    def _resolve_name(self, name: str, scope: NameScope) -> Values:
        found = scope.find(name)
        if found is not None:
            where, bindings = found
            return tuple(value for one in bindings for value in self._resolve_binding(one, name, where))
        names = self._of.function.__globals__
        for known in (self._names, names, vars(builtins)):
            if name in known:
                return (live(known[name]),)
        return ()

    def _resolve_binding(self, binding: Binding, name: str, scope: NameScope) -> Values:
        if binding.how is Bound.VALUE:
            return self.resolve(binding.node, scope)
        if binding.how in (Bound.MODULE, Bound.MEMBER):
            return self._resolve_import(binding)
        is_first = self._first is not None and self._first.arg == name and scope.parent is None
        if is_first and self._of.first is not None:
            return (self._of.first,)
        if binding.how is Bound.TYPE and binding.node is not None:
            return self._resolve_type(binding.node, scope)
        return ()

    def _resolve_type(self, node: ast.expr, scope: NameScope) -> Values:
        if isinstance(node, ast.BinOp):  # X | None
            return (*self._resolve_type(node.left, scope), *self._resolve_type(node.right, scope))
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found = evaluate_type(node.value, self._of.function.__globals__)
            return (found,) if found is not None else ()
        described = [describe_type(value.about) for value in self.resolve(node, scope) if value.kind is Kind.LIVE]
        return tuple(one for one in described if one is not None)

    def _resolve_import(self, binding: Binding) -> Values:
        module_name, colon, member = binding.text.partition(":")
        try:
            absolute = _make_absolute(module_name, self._of.function.__globals__)
            module = import_lazily(absolute)
            if not colon:
                return (module,)
            if not member:
                return ()
            found = find_attribute(module, member)
            return found if found else (import_lazily(f"{absolute}.{member}"),)
        except (Exception, SystemExit) as error:
            failure = f"module {module_name}, which it imports, cannot be imported: {type(error).__name__}: {error}"
            if failure not in self.failures:
                self.failures.append(failure)
            return ()

    def _resolve_attribute(self, node: ast.Attribute, scope: NameScope) -> Iterator[Value]:
        owner = node.value
        if (
            isinstance(owner, ast.Call)
            and isinstance(owner.func, ast.Name)
            and owner.func.id == "super"
            and not owner.args
        ):
            defined_in, first = self._names.get("__class__"), self._of.first
            if isinstance(defined_in, type) and first is not None and isinstance(first.about, type):
                yield from find_inherited(first.about, defined_in, node.attr, first)
            return
        for value in self.resolve(owner, scope):
            yield from find_attribute(value, node.attr)

    def _resolve_call(self, node: ast.Call, scope: NameScope) -> Iterator[Value]:
        first = node.args[0] if node.args else None
        text = first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else ""
        for value in self.resolve(node.func, scope):
            about = value.about if value.kind is Kind.LIVE else None
            if about is getattr and len(node.args) > 1:
                name = node.args[1]
                if isinstance(name, ast.Constant) and isinstance(name.value, str):
                    for one in self.resolve(first, scope):
                        yield from find_attribute(one, name.value)
            elif text and (about is builtins.__import__ or about is importlib.import_module):
                whole = about is importlib.import_module
                yield from self._resolve_import(Binding(Bound.MODULE, text=text if whole else text.partition(".")[0]))
            elif about is functools.partial:
                yield from self.resolve(first, scope)
            else:
                yield from find_result(value, node)


def _read_closure(function: types.FunctionType) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # it was not bound yet
            continue
    return found


def _make_absolute(name: str, names: dict[str, Any]) -> str:
    if not name.startswith("."):
        return name
    package = names.get("__package__") or names.get("__name__", "").rpartition(".")[0]
    return importlib.util.resolve_name(name, package)


def _is_for_type_checkers(test: ast.expr) -> bool:
    return (isinstance(test, ast.Name) and test.id == "TYPE_CHECKING") or (
        isinstance(test, ast.Attribute) and test.attr == "TYPE_CHECKING"
    )


def _is_class(value: Value) -> bool:
    return value.kind is Kind.NAME or (value.kind is Kind.LIVE and isinstance(value.about, type))


def _awaits(nodes: Any) -> bool:
    return any(isinstance(inner, ast.Await) for node in nodes for inner in ast.walk(node))


def _list_factories(owner: type) -> Iterator[tuple[str, Any]]:
    """List the fields of a dataclass, attrs class, msgspec struct or pydantic model, with what makes a field left out."""
    fields = getattr(owner, "__dataclass_fields__", None) or getattr(owner, "__pydantic_fields__", None)
    if isinstance(fields, dict):
        for name, field in fields.items():
            factory = getattr(field, "default_factory", None)
            yield name, factory if callable(factory) else None
    elif isinstance(attributes := getattr(owner, "__attrs_attrs__", None), tuple):
        for one in attributes:
            yield one.name, getattr(one.default, "factory", None)
    elif hasattr(owner, "__struct_fields__"):
        names = owner.__struct_fields__
        defaults = (None,) * (len(names) - len(owner.__struct_defaults__)) + owner.__struct_defaults__  # type: ignore[attr-defined]  # beside the fields
        for name, default in zip(names, defaults, strict=True):
            yield name, getattr(default, "factory", None)
