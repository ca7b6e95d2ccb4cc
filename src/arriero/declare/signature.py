"""A user's function as arriero sees it: its parameters and result as JSON types, bound and checked without calling it."""

import contextlib
import inspect
import re
import sys
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

import msgspec

from ..errors import DefinitionError, InvalidArguments, InvalidInput
from ..payloads import codec
from ..payloads.payload_types import build_example, find_unwritable, holds_reference, may_hold_unsortable_set
from ..payloads.plain_values import VERSIONS, Reference, fill_in_defaults
from ..payloads.round_trip import Check, build_check, check_unannotated
from ..text.format import format_count
from .attempt import Attempt, Undo

T = TypeVar("T")
_ABSENT = msgspec.UNSET
EXAMPLE_MAX = 200  # characters of an example in an error
_NAMED = re.compile(r"(?:\w+\.)*(?:Attempt|Undo)(?:\[.*\])?")  # of a type that cannot be imported where it stands


class Signature:
    """Parameters (after those arriero itself gives) and result of a function.

    Args:
        function: with named parameters only.
        what: for errors, for example ``step charge``.
        is_given: whether arriero gives the first parameter itself, the Attempt or the Undo.
        may_be_given: whether there is one to give: not in a workflow.
    Types are resolved at definition; names that are not defined yet are resolved at first use.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        what: str,
        *,
        is_given: bool = False,
        may_be_given: bool = False,
        scope: Mapping[str, Any] | None = None,
    ) -> None:
        self.function = function
        self.what = what
        self.is_given = is_given
        self._may_be_given = may_be_given
        self._scope = scope
        parameters = list(read_signature(function).parameters.values())
        for parameter in parameters:
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                raise DefinitionError(
                    f"{what}: *{parameter.name} has no name for each value; give every parameter a name"
                )
        self._first = parameters[0].name if is_given else ""
        self._parameters = parameters[is_given:]
        self._positional = tuple(p.name for p in self._parameters if p.kind is not p.KEYWORD_ONLY)
        self._positional_only = tuple(p.name for p in self._parameters if p.kind is p.POSITIONAL_ONLY)
        self._names = frozenset(p.name for p in self._parameters)
        self._required = frozenset(p.name for p in self._parameters if p.default is p.empty)
        self._hints: Mapping[str, Any] | None = None  # once the types are resolved
        # What a value is compared by with what was read back, and whether sets may need sorting; computed once.
        self._checks: dict[str, Check] = {}
        self._check_result: Check | None = None
        self._need_sorting = self._result_needs_sorting = False
        self._versions: Mapping[str, codec.VersionReader] = {}
        self.takes_references = False  # an argument may be, or hold, a Callback
        # From JSON text. Raises InvalidInput when it does not fit.
        self.result: Callable[[str], Any] = self._resolve_and_read_result
        self._read_arguments: Callable[[str], Any] = self._resolve_and_read_arguments  # a mark for each absent one
        with contextlib.suppress(NameError):  # a type defined further down; the first use resolves it or names it
            self._resolve()

    def _resolve(self) -> None:
        scope = dict(self._scope) if self._scope else None
        try:
            hints = (
                resolve_arguments(self.function, self._first, scope)
                if self.is_given
                else typing.get_type_hints(self.function, localns=scope, include_extras=True)
            )
        except (TypeError, AttributeError, SyntaxError) as error:
            raise DefinitionError(f"{self.what}: a type cannot be read: {error}") from error
        self._hints = hints
        fields: list[Any] = []
        for parameter in self._parameters:
            of = hints.get(parameter.name, Any)
            refuse_misplaced(self.what, parameter.name, of, gives=self._may_be_given)
            # One by one, so that the culprit is named.
            codec.decoder(of, f"{self.what}: parameter {parameter.name}", may_refer=self._may_be_given)
            self.takes_references = self.takes_references or holds_reference(of)
            fields.append((parameter.name, of | msgspec.UnsetType if of is not Any else Any, _ABSENT))
            self._checks[parameter.name] = self._build_check(hints, parameter.name, f"parameter {parameter.name}")
            self._need_sorting = self._need_sorting or may_hold_unsortable_set(of)
        struct = msgspec.defstruct("Arguments", fields, kw_only=True, forbid_unknown_fields=True)
        self._read_arguments = codec.decoder(struct, self.what, may_refer=self._may_be_given)
        of = hints.get("return", Any)
        self._versions = {"arguments": codec.VersionReader(struct), "result": codec.VersionReader(of)}
        self.result = codec.decoder(of, f"{self.what}: result")
        if (why := find_unwritable(of)) is not None:  # here, since a result is refused after the service was called
            raise DefinitionError(f"{self.what}: result: {why}")
        self._check_result = self._build_check(hints, "return", "result")
        self._result_needs_sorting = may_hold_unsortable_set(of)

    def _build_check(self, hints: Mapping[str, Any], name: str, what: str) -> Check:
        return build_check(hints[name]) if name in hints else partial(check_unannotated, f"{self.what}: {what}")

    def resolve_if_defined(self) -> None:
        """Resolve types that were not defined when the function was declared, unless one still is not."""
        if self._hints is None:
            with contextlib.suppress(NameError):
                self._resolve()

    def _resolve_late(self) -> None:
        try:
            self._resolve()
        except NameError as error:
            raise DefinitionError(f"{self.what}: {error}; its types must be importable where it is defined") from error

    def describe(self) -> tuple[object, ...]:
        """Return what callers see of the function: names, kinds, defaults and types. Equal ones take the same calls."""
        if self._hints is None:
            self._resolve_late()
        hints = self._hints or {}
        parameters = tuple((p.name, p.kind, p.default, hints.get(p.name, Any)) for p in self._parameters)
        return (*parameters, hints.get("return", Any))

    def takes_one_list(self) -> bool:
        """Returns True if the function takes one parameter, a list without a default. Types not defined yet may be one."""
        if len(self._parameters) != 1 or not self._required:
            return False
        of = (self._hints or {}).get(self._parameters[0].name, list)
        return (typing.get_origin(of) or of) in (list, Sequence)

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
        """Arguments of a call as JSON text, only those given, checked against the types.

        Raises: InvalidInput - missing, unknown or doubled parameters, or a value the type refuses.
        """
        if len(args) > len(self._positional):
            after = f" after {self._first}, which takes the Attempt that arriero gives it" if self._first else ""
            count = format_count(len(self._positional), "positional argument")
            raise self.refuse(f"{self.what} takes {count}{after}, {len(args)} were given")
        values = dict(zip(self._positional, args, strict=False))
        for name, value in kwargs.items():
            if name not in self._names:
                raise self.refuse(f"{self.what} has no parameter {name!r}")
            if name in values:
                raise self.refuse(f"{self.what}: {name} was given twice")
            values[name] = value
        if missing := self._required - values.keys():
            if self._hints is None:
                self._resolve_late()  # a first parameter whose type is not known here may be meant as the Attempt
            raise self.refuse(f"{self.what}: missing {', '.join(sorted(missing))}{self._explain_untyped_first()}")
        return self._encode_arguments(values)

    def refuse(self, why: str) -> InvalidArguments:
        """Build the error for arguments that do not fit: with the declared parameters, and a call that fits."""
        if self._hints is None:
            self._resolve_late()
        parameters = [one.replace(annotation=self._get_shown_type(one)) for one in self._parameters]
        example, values = self._build_example()
        call = f"{self.what.rpartition(' ')[2]}({', '.join(f'{name}={value!r}' for name, value in values.items())})"
        is_short = example and len(call) <= EXAMPLE_MAX
        return InvalidArguments(
            why,
            takes=str(inspect.Signature(parameters)).replace("'", ""),
            example=example if len(example) <= EXAMPLE_MAX else "",
            call=call if is_short else "",
        )

    def _get_shown_type(self, parameter: inspect.Parameter) -> Any:
        of = (self._hints or {}).get(parameter.name, parameter.empty)
        if of is parameter.empty:
            return of
        return getattr(of, "__name__", of) if isinstance(of, type) and not typing.get_args(of) else of

    def _build_example(self) -> tuple[str, dict[str, Any]]:
        """Build arguments that fit, as JSON text and as values. Empty: none is known, as where a type checks more."""
        try:
            hints = self._hints or {}
            plain = {one: build_example(hints.get(one, Any)) for one in self.list_names() if one in self._required}
            example = msgspec.json.encode(plain).decode()
            read = self._read_arguments(example)
            return example, {name: getattr(read, name) for name in plain}
        except (InvalidInput, DefinitionError, ValueError, TypeError, AttributeError):
            return "", {}

    def _explain_untyped_first(self) -> str:
        """Say to whom an argument is missing why: up to release 0.4 a first parameter without a type got the Attempt."""
        first = next(iter(self._parameters), None)
        if not self._may_be_given or self.is_given or first is None or first.annotation is not first.empty:
            return ""
        if first.name == "self":
            return "; a step is a function of a module, not a method: write it outside of the class, without self"
        return f"; arriero gives {first.name} an Attempt only if it is annotated so: `{first.name}: Attempt`"

    def _encode_arguments(self, values: Mapping[str, Any]) -> str:
        if self._hints is None:
            self._resolve_late()
        what = f"arguments of {self.what}"
        text = codec.encode(values, what, may_hold_unsortable_set=self._need_sorting)
        try:
            if VERSIONS and self._versions["arguments"].lift(text)[1]:  # plain objects of an older version
                values = self.arguments(text, are_all=False)
                fill_in_defaults(values)
                text = codec.encode(values, what, may_hold_unsortable_set=self._need_sorting)
            read = self._read_arguments(text)
        except InvalidInput as error:
            for name, value in values.items():
                if isinstance(value, Reference) and not holds_reference((self._hints or {}).get(name, Any)):
                    remedy = "so give the parameter the type Callback[...]"
                    raise self.refuse(f"{self.what}: {name} is {value!r}, {remedy}") from error
                if (why := find_unwritable((self._hints or {}).get(name, Any))) is not None:
                    raise InvalidInput(f"{what}: {name}: {why}") from error
            raise self.refuse(str(error)) from error
        codec.refuse_differences(what, self._checks, values, read)
        return text

    def mean_same(self, recorded: str, asked: str) -> bool:
        """Returns True if two texts are the same arguments, as a set in another order, or a field that has its default."""
        try:
            values = self.arguments(recorded)
            fill_in_defaults(values)
            return self._encode_arguments(values) == asked
        except (InvalidInput, DefinitionError):
            return False

    def arguments(self, text: str, *, are_all: bool = True) -> dict[str, Any]:
        """The recorded arguments, by name, as the function takes them. Raises InvalidInput when they do not fit.

        ``are_all``: False if the JSON object may name only some of them.
        """
        try:
            found = msgspec.structs.asdict(self._read_arguments(text))
        except InvalidInput as error:
            raise self.refuse(str(error)) from error
        for name in [name for name, value in found.items() if value is _ABSENT]:
            del found[name]
        if are_all and (missing := self._required - found.keys()):  # as may be where they were submitted by SQL
            raise self.refuse(f"{self.what}: missing {', '.join(sorted(missing))}")
        return found

    def arguments_with_defaults(self, text: str) -> dict[str, Any]:
        """The recorded arguments of a call in the order of the parameters, with the defaults of those that were left out.

        Raises: InvalidInput - as ``arguments``.
        """
        found = self.arguments(text)
        return {p.name: found.get(p.name, p.default) for p in self._parameters}

    def encode_arguments(self, values: Mapping[str, Any]) -> str:
        """Decoded arguments as JSON text, as a program outside of Python gets them."""
        return codec.encode(values, f"arguments of {self.what}")

    def _resolve_and_read_arguments(self, text: str) -> Any:
        self._resolve_late()
        return self._read_arguments(text)

    def _resolve_and_read_result(self, text: str) -> Any:
        self._resolve_late()
        return self.result(text)

    def list_names(self) -> list[str]:
        """Names of the arguments, in order."""
        return [parameter.name for parameter in self._parameters]

    def call(self, given: object, arguments: dict[str, Any]) -> Any:
        """Call the function with the decoded arguments, and with what arriero gives if it takes that."""
        positional = [arguments.pop(name) for name in self._positional_only if name in arguments]
        return self.function(*([given] if self.is_given else ()), *positional, **arguments)

    def encode_result(self, value: Any) -> str:
        """The result as JSON text, proved to fit the declared type. Raises InvalidInput."""
        if self._check_result is None:
            self._resolve_late()
        what = f"result of {self.what}"
        text = codec.encode(value, what, may_hold_unsortable_set=self._result_needs_sorting)
        try:
            back = self.result(text)
            if VERSIONS and self._versions["result"].lift(text)[1]:  # plain objects of an older version
                fill_in_defaults(back)
                value = back
                text = codec.encode(value, what, may_hold_unsortable_set=self._result_needs_sorting)
        except InvalidInput as error:
            raise InvalidInput(
                f"{error}; return what the function is annotated with, or correct its annotation"
            ) from error
        if self._check_result is not None:
            codec.refuse_difference(what, self._check_result, value, back)
        return text


class ValueType(Generic[T]):
    """The type of a value that is recorded as JSON text.

    Args:
        of: the type. ``what``: names the value in errors, for example ``signal approved``.
    Raises: DefinitionError - the type cannot be written and read back.
    """

    def __init__(self, of: type[T], what: str) -> None:
        self.of = of
        self._what = what
        self._decode: Callable[[str], T] = codec.decoder(of, what)
        self._versions = codec.VersionReader(of)
        if (why := find_unwritable(of)) is not None:
            raise DefinitionError(f"{what}: {why}")
        self._check = build_check(of)
        self._needs_sorting = may_hold_unsortable_set(of)

    def encode(self, value: T) -> str:
        """The value as JSON text, proved to fit the type. Raises InvalidInput."""
        text = codec.encode(value, self._what, may_hold_unsortable_set=self._needs_sorting)
        back = self._decode(text)
        if VERSIONS and self._versions.lift(text)[1]:  # plain objects of an older version
            fill_in_defaults(back)
            return codec.encode(back, self._what, may_hold_unsortable_set=self._needs_sorting)
        codec.refuse_difference(self._what, self._check, value, back)
        return text

    def mean_same(self, recorded: str, given: str) -> bool:
        """Returns True if two texts are the same value, of which another release wrote the first in another way."""
        try:
            value = self._decode(recorded)
            fill_in_defaults(value)
            return self.encode(value) == given
        except InvalidInput:
            return False

    def read(self, text: str) -> T:
        """The value of a JSON text. Raises InvalidInput - it does not fit the type."""
        return self._decode(text)


# --- the first parameter, which arriero may give
def read_signature(function: Callable[..., Any]) -> inspect.Signature:
    """Read the parameters of a function. A type that is defined further down stays a forward reference."""
    if sys.version_info >= (3, 14):
        from annotationlib import Format

        return inspect.signature(function, annotation_format=Format.FORWARDREF)
    return inspect.signature(function)


def takes_given(
    function: Callable[..., Any], what: str, gives: type[Attempt], scope: Mapping[str, Any] | None = None
) -> bool:
    """Returns True if the first parameter of a function is annotated ``gives``, or as what stands for it.

    Args:
        what: for errors, for example ``step charge``.
        gives: Attempt, or Undo for a compensation.
        scope: names where the function is defined.
    Raises: DefinitionError - its type is another one that only arriero makes, or it has none and is named like an attempt.
    """
    first = next(iter(read_signature(function).parameters.values()), None)
    if first is None:
        return False
    if first.annotation is first.empty:
        if first.name in ("attempt", "undo"):
            raise DefinitionError(
                f"{what}: its first parameter {first.name} has no type: write `{first.name}: {gives.__name__}` if arriero gives"
                " it, or its own type if it is an argument"
            )
        return False
    of = _resolve(first.annotation, function, scope)
    if not _accepts(of):
        return False
    if first.kind is first.KEYWORD_ONLY:
        raise DefinitionError(
            f"{what}: {first.name} is keyword-only; the first parameter must take what arriero gives it by place: write it"
            " before the `*`"
        )
    classes = [one for one in _list_classes(of) if issubclass(one, Attempt)]
    if classes and not any(issubclass(gives, one) for one in classes):
        raise DefinitionError(
            f"{what}: its first parameter {first.name} is typed {classes[0].__name__}; a step gets an Attempt, and a"
            f" compensation an Undo: write `{first.name}: {gives.__name__}`"
        )
    return True


def refuse_misplaced(what: str, name: str, of: Any, *, gives: bool) -> None:
    """Refuse an Attempt among the arguments of a call. ``gives``: whether arriero gives the function one. Raises DefinitionError."""
    if any(issubclass(one, Attempt) for one in _list_classes(of)):
        remedy = (
            "make it the first parameter"
            if gives
            else "workflow code has none: take it in the steps, as their first parameter"
        )
        raise DefinitionError(f"{what}: parameter {name} is an Attempt, which no caller can give: {remedy}")


def resolve_arguments(function: Callable[..., Any], first: str, scope: Mapping[str, Any] | None) -> dict[str, Any]:
    """Resolve the types of a function but that of its first parameter, which may be importable by type checkers alone."""

    def holder() -> None: ...

    if sys.version_info >= (3, 14):
        from annotationlib import Format, get_annotations

        annotations = get_annotations(function, format=Format.FORWARDREF)
    else:
        annotations = function.__annotations__
    holder.__annotations__ = {name: of for name, of in annotations.items() if name != first}
    return _get_hints(holder, function, scope)


def _resolve(annotation: Any, function: Callable[..., Any], scope: Mapping[str, Any] | None) -> Any:
    """Resolve one type. If it cannot be resolved here, its text says whether it is an Attempt."""

    def holder() -> None: ...

    holder.__annotations__ = {"first": annotation}
    try:
        return _get_hints(holder, function, scope)["first"]
    except (NameError, TypeError, AttributeError, SyntaxError):
        text = annotation if isinstance(annotation, str) else getattr(annotation, "__forward_arg__", "")
        if not _NAMED.fullmatch(text.strip("'\" ")):
            return Any
        return Undo if "Undo" in text.partition("[")[0] else Attempt


def _get_hints(
    holder: Callable[..., Any], function: Callable[..., Any], scope: Mapping[str, Any] | None
) -> dict[str, Any]:
    names = getattr(inspect.unwrap(function), "__globals__", {})
    return typing.get_type_hints(holder, globalns=names, localns=dict(scope) if scope else None, include_extras=True)


def _list_classes(of: Any) -> list[type]:
    """List the classes that a type names at its top: of a union all of them."""
    origin = typing.get_origin(of)
    if origin is typing.Annotated:
        return _list_classes(typing.get_args(of)[0])
    if origin in (typing.Union, types.UnionType):
        return [one for member in typing.get_args(of) for one in _list_classes(member)]
    if isinstance(of, typing.TypeVar):
        return _list_classes(of.__bound__)
    found = origin or of
    return [found] if isinstance(found, type) else []


def _accepts(typed: Any) -> bool:
    """Returns True if a parameter of this type takes an Attempt: itself, ``object``, or a protocol that looks like it."""
    return any(
        issubclass(of, Attempt) or of is object or getattr(of, "_is_protocol", False) for of in _list_classes(typed)
    )
