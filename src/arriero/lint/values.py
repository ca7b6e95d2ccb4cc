"""The values that expressions of workflow code stand for, as far as they are known without running it."""

import ast
import asyncio
import functools
import importlib
import importlib.util
import inspect
import sys
import types
import typing
from collections.abc import Iterator
from enum import Enum
from pathlib import PurePath
from typing import Any, NamedTuple

from ..declare.declared import Declared
from ..system.source_files import is_foreign

CHOICES_MAX = 100  # of a table of functions
_HONEST = frozenset((types.FunctionType, types.BuiltinFunctionType, types.ModuleType, type))


class Kind(Enum):
    """The meaning of a value's ``about``."""

    LIVE = "live"  # the object itself
    INSTANCE = "instance"  # its class
    NAME = "name"  # the full name of something that is not loaded
    METHOD = "method"  # the function of a class, looked up in ``owner``


class Value(NamedTuple):
    """One value that an expression may have."""

    kind: Kind
    about: Any
    owner: Any = None
    name: str = ""


Values = tuple[Value, ...]


class Reachable(NamedTuple):
    """A function that code may call, and the value of its first parameter if that is known."""

    function: Any  # of types.FunctionType, which as a member would be taken for a method
    first: Value | None = None

    def identify(self) -> tuple[int, int]:
        """Returns a key that no other has while its objects live."""
        return id(self.function), 0 if self.first is None else id(self.first.about)


def live(value: Any) -> Value:
    """The value of a live object. Of one that pretends to be another's instance only its class is asked, as it may run code."""
    kind = type(value)
    is_honest = kind in _HONEST or all("__class__" not in vars(one) for one in kind.__mro__ if one is not object)
    return Value(Kind.LIVE, value) if is_honest else Value(Kind.INSTANCE, kind)


def find_attribute(value: Value, name: str) -> Values:
    """Find an attribute without running code of users, but for a module's own ``__getattr__``."""
    if value.kind is Kind.NAME:
        return (Value(Kind.NAME, f"{value.about}.{name}"),)
    if value.kind is Kind.INSTANCE:
        return _find_in_class(value.about, name, value)
    if value.kind is Kind.METHOD:
        return ()
    about = value.about
    if isinstance(about, types.ModuleType):
        return _find_in_module(about, name)
    if isinstance(about, Declared):
        return (live(about.__wrapped__),) if name == "function" else ()  # type: ignore[attr-defined]  # set by _show_as
    if isinstance(about, type):
        return _find_in_class(about, name, value)
    try:
        kept = object.__getattribute__(about, "__dict__")  # past its own __getattribute__
    except AttributeError:  # it has __slots__
        kept = {}
    if name in kept:
        return (live(kept[name]),)
    return _find_in_class(type(about), name, Value(Kind.INSTANCE, type(about)))


def _find_in_module(module: types.ModuleType, name: str) -> Values:
    if name in vars(module):
        return (live(vars(module)[name]),)
    if (inner := sys.modules.get(f"{module.__name__}.{name}")) is not None:
        return (live(inner),)
    try:
        return (live(getattr(module, name)),)
    except Exception:  # whatever a module's __getattr__ raises: the workflow would meet it, too
        return ()


def _find_in_class(owner: type, name: str, asked: Value, after: type | None = None) -> Values:
    mro = owner.__mro__
    for one in mro[mro.index(after) + 1 if after in mro else 0 :]:
        if name in vars(one):
            return _describe_member(vars(one)[name], owner, name, asked)
    found = _evaluate_annotation(_find_annotation(owner, name), owner)
    return (found,) if found is not None else ()


def find_inherited(owner: type, after: type, name: str, asked: Value) -> Values:
    """Find what ``super().name`` is in a method of the class ``after``."""
    return _find_in_class(owner, name, asked, after)


def _describe_member(member: Any, owner: type, name: str, asked: Value) -> Values:
    if isinstance(member, Declared):
        return (live(member),)
    routine = isinstance(
        member, types.FunctionType | classmethod | staticmethod | property | functools.cached_property
    ) or inspect.isroutine(member)
    if routine or inspect.getattr_static(member, "__wrapped__", None) is not None:
        return (Value(Kind.METHOD, member, (owner, asked), name),)
    if isinstance(member, types.MemberDescriptorType | types.GetSetDescriptorType):  # of __slots__
        found = _evaluate_annotation(_find_annotation(owner, name), owner)
        return (found,) if found is not None else ()
    return (live(member),)


def _find_annotation(owner: type, name: str) -> Any:
    for one in owner.__mro__:
        found = _read_annotations(one).get(name) if one is not object else None
        if found is not None:
            return found
    return None


def _read_annotations(value: Any) -> dict[str, Any]:
    try:
        return inspect.get_annotations(value)
    except Exception:  # from Python 3.14 on they are evaluated here, and may name what only type checkers import
        return {}


def _evaluate_annotation(annotation: Any, owner: Any) -> Value | None:
    if isinstance(annotation, str):
        names = vars(sys.modules.get(owner.__module__, types.ModuleType("none")))
        return evaluate_type(annotation, names)
    return describe_type(annotation)


def evaluate_type(text: str, names: dict[str, Any]) -> Value | None:
    """The value of a type that is written as text, by the names of its module."""
    found: Any = None
    for word in text.partition("|")[0].strip().split("."):
        found = names.get(word) if found is None else getattr(found, word, None)
        if found is None:
            return None
    return describe_type(found)


def describe_type(annotation: Any) -> Value | None:
    """An instance of the class that an annotation names; None: it names none, or several."""
    if typing.get_origin(annotation) in (typing.Union, types.UnionType, typing.Annotated):
        named = [one for one in typing.get_args(annotation) if one is not type(None)]
        annotation = named[0] if len(named) == 1 or typing.get_origin(annotation) is typing.Annotated else None
    is_class = isinstance(annotation, type) and not isinstance(annotation, types.GenericAlias)
    return Value(Kind.INSTANCE, annotation) if is_class and annotation is not type(None) else None


def find_result(value: Value, call: ast.Call) -> Values:
    """Find what a call of the value returns."""
    if value.kind is Kind.LIVE and isinstance(value.about, type):
        return (Value(Kind.INSTANCE, value.about),)
    if value.kind is Kind.METHOD and value.owner[1].kind is Kind.INSTANCE and issubclass(value.owner[0], PurePath):
        return (value.owner[1],)
    about = value.about
    if isinstance(about, classmethod | staticmethod):
        about = about.__func__
    if about is asyncio.get_running_loop or about is asyncio.get_event_loop:
        return (Value(Kind.INSTANCE, asyncio.AbstractEventLoop),)
    if isinstance(about, functools.partial):
        return find_result(live(about.func), call)
    if isinstance(about, types.FunctionType):
        annotation = _read_annotations(about).get("return")
        found = (
            evaluate_type(annotation, about.__globals__) if isinstance(annotation, str) else describe_type(annotation)
        )
        return (found,) if found is not None else ()
    return ()


def find_item(value: Value, key: ast.expr) -> Values:
    """Find what may stand in a live table of functions."""
    about: Any = value.about if value.kind is Kind.LIVE else None
    if type(about) not in (dict, list, tuple):
        return ()
    if isinstance(key, ast.Constant):
        try:
            return (live(about[key.value]),)
        except (LookupError, TypeError):
            return ()
    return tuple(map(live, list(about.values() if type(about) is dict else about)[:CHOICES_MAX]))


def import_lazily(name: str) -> Value:
    """The module that code imports when it runs. One that is not loaded is loaded if it is Python's or the user's."""
    module = sys.modules.get(name)
    if module is None and (name.partition(".")[0] in sys.stdlib_module_names or _is_users(name)):
        module = importlib.import_module(name)
    return Value(Kind.NAME, name) if module is None else live(module)


def _is_users(name: str) -> bool:
    try:
        spec = importlib.util.find_spec(name.partition(".")[0])
    except (ImportError, ValueError):
        return False
    places = list(spec.submodule_search_locations or []) if spec is not None else []
    if spec is not None and spec.origin is not None:
        places.append(spec.origin)
    return bool(places) and not any(map(is_foreign, places))


def list_reachable(value: Value, *, is_called: bool) -> Iterator[Reachable]:
    """List the functions that run if the value is called, or handed to others to be called."""
    if value.kind is Kind.METHOD:
        owner, asked = value.owner
        yield from _list_of_member(value.about, owner, asked)
    elif value.kind is Kind.INSTANCE and is_called:
        yield from list_methods(value.about, "__call__")
    elif value.kind is Kind.LIVE:
        yield from _list_of_object(value.about, is_called=is_called)


def _list_of_object(about: Any, *, is_called: bool) -> Iterator[Reachable]:
    if isinstance(about, Declared | types.ModuleType):  # steps and workflows run elsewhere
        return
    if isinstance(about, types.FunctionType):
        yield Reachable(about)
        if is_foreign(about.__code__.co_filename) and hasattr(about, "__wrapped__"):  # of a library's decorator
            yield from _list_of_object(about.__wrapped__, is_called=is_called)
    elif isinstance(about, types.MethodType):
        for one in _list_of_object(about.__func__, is_called=is_called):
            yield Reachable(one.function, live(about.__self__))
    elif isinstance(about, functools.partial):
        yield from _list_of_object(about.func, is_called=is_called)
    elif isinstance(about, type):
        if is_called:
            yield from list_methods(about, "__new__", "__init__", "__post_init__")
    elif isinstance(inspect.getattr_static(about, "__wrapped__", None), types.FunctionType):
        yield from _list_of_object(about.__wrapped__, is_called=is_called)
    elif is_called:
        yield from list_methods(type(about), "__call__")


def list_methods(owner: type, *names: str) -> Iterator[Reachable]:
    """List the methods of these names that a class has or inherits from a class that is written in Python."""
    asked = Value(Kind.INSTANCE, owner)
    for name in names:
        for value in _find_in_class(owner, name, asked):
            if value.kind is Kind.METHOD:
                yield from _list_of_member(value.about, owner, asked)


def _list_of_member(member: Any, owner: type, asked: Value) -> Iterator[Reachable]:
    first: Value | None = asked if asked.kind is Kind.INSTANCE else None
    if isinstance(member, classmethod):
        first = live(owner)
    elif isinstance(member, staticmethod):
        first = None
    inner = getattr(member, "fget", None) or getattr(member, "func", None) or getattr(member, "__func__", member)
    function = inner if isinstance(inner, types.FunctionType) else getattr(inner, "__wrapped__", None)
    if isinstance(function, types.FunctionType):
        yield Reachable(function, first)
        if is_foreign(function.__code__.co_filename) and isinstance(
            wrapped := getattr(function, "__wrapped__", None), types.FunctionType
        ):
            yield Reachable(wrapped, first)
