"""A user's function as arriero sees it: its parameters and result as JSON types, bound and checked without calling it."""

import contextlib
import inspect
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from ..errors import DefinitionError, InvalidInput
from ..payloads import codec
from ..payloads.payload_types import find_unwritable, may_hold_unsortable_set
from ..payloads.plain_values import add_article, fill_in_defaults
from ..payloads.round_trip import Check, build_check
from .attempt import Attempt

_ABSENT = msgspec.UNSET


class Signature:
    """Parameters (after those arriero itself gives) and result of a function.

    Args:
        function: with named parameters only.
        what: for errors, for example ``step charge``.
        given: how many leading parameters arriero fills in itself (the Attempt).
    Types are resolved at definition; names that are not defined yet are resolved at first use.
    """

    def __init__(
        self, function: Callable[..., Any], what: str, *, given: int, scope: Mapping[str, Any] | None = None
    ) -> None:
        self.function = function
        self.what = what
        self._scope = scope
        parameters = list(inspect.signature(function).parameters.values())
        if any(p.kind is p.KEYWORD_ONLY for p in parameters[:given]) or len(parameters) < given:
            raise DefinitionError(f"{what}: the first parameter must take what arriero gives it (an Attempt or Undo)")
        for parameter in parameters:
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                raise DefinitionError(
                    f"{what}: *{parameter.name} has no name for each value; give every parameter a name"
                )
        self._first = parameters[0].name if given else ""
        self._parameters = parameters[given:]
        self._positional = tuple(p.name for p in self._parameters if p.kind is not p.KEYWORD_ONLY)
        self._positional_only = tuple(p.name for p in self._parameters if p.kind is p.POSITIONAL_ONLY)
        self._names = frozenset(p.name for p in self._parameters)
        self._required = frozenset(p.name for p in self._parameters if p.default is p.empty)
        self._hints: Mapping[str, Any] | None = None  # once the types are resolved
        # What a value is compared by with what was read back, and whether sets may need sorting; computed once.
        self._checks: dict[str, Check] = {}
        self._check_result: Check | None = None
        self._need_sorting = self._result_needs_sorting = False
        # From JSON text. Raises InvalidInput when it does not fit.
        self.result: Callable[[str], Any] = self._resolve_and_read_result
        self._read_arguments: Callable[[str], Any] = self._resolve_and_read_arguments  # a mark for each absent one
        with contextlib.suppress(NameError):  # a type defined further down; the first use resolves it or names it
            self._resolve()

    def _resolve(self) -> None:
        scope = dict(self._scope) if self._scope else None
        try:
            hints = typing.get_type_hints(self.function, localns=scope, include_extras=True)
        except (TypeError, AttributeError, SyntaxError) as error:
            raise DefinitionError(f"{self.what}: a type cannot be read: {error}") from error
        self._refuse_no_attempt(hints.get(self._first, Any))
        self._hints = hints
        fields: list[Any] = []
        for parameter in self._parameters:
            of = hints.get(parameter.name, Any)
            codec.decoder(of, f"{self.what}: parameter {parameter.name}")  # one by one, so that the culprit is named
            fields.append((parameter.name, of | msgspec.UnsetType if of is not Any else Any, _ABSENT))
            self._checks[parameter.name] = build_check(of)
            self._need_sorting = self._need_sorting or may_hold_unsortable_set(of)
        struct = msgspec.defstruct("Arguments", fields, kw_only=True, forbid_unknown_fields=True)
        self._read_arguments = codec.decoder(struct, self.what)
        of = hints.get("return", Any)
        self.result = codec.decoder(of, f"{self.what}: result")
        if (why := find_unwritable(of)) is not None:  # here, since a result is refused after the service was called
            raise DefinitionError(f"{self.what}: result: {why}")
        self._check_result = build_check(of)
        self._result_needs_sorting = may_hold_unsortable_set(of)

    def _refuse_no_attempt(self, of: Any) -> None:
        """Refuse a first parameter that arriero cannot give. Raises DefinitionError."""
        of = typing.get_origin(of) or of
        if not self._first or of in (Any, types.UnionType) or not isinstance(of, type):
            return
        if getattr(of, "_is_protocol", False):  # what only looks like an Attempt
            return
        if not issubclass(of, Attempt) and not issubclass(Attempt, of):
            raise DefinitionError(
                f"{self.what}: its first parameter {self._first} is {add_article(of.__qualname__)}; it must take what arriero"
                f" gives it, like `attempt: Attempt` (of a compensation `undo: Undo`), with {self._first} after it"
            )

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

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
        """Arguments of a call as JSON text, only those given, checked against the types.

        Raises: InvalidInput - missing, unknown or doubled parameters, or a value the type refuses.
        """
        if len(args) > len(self._positional):
            after = f" after {self._first}, which takes the Attempt that arriero gives it" if self._first else ""
            raise InvalidInput(
                f"{self.what} takes {len(self._positional)} positional arguments{after}, {len(args)} were given"
            )
        values = dict(zip(self._positional, args, strict=False))
        for name, value in kwargs.items():
            if name not in self._names:
                raise InvalidInput(
                    f"{self.what} has no parameter {name!r}; it has {', '.join(sorted(self._names)) or 'none'}"
                )
            if name in values:
                raise InvalidInput(f"{self.what}: {name} was given twice")
            values[name] = value
        if missing := self._required - values.keys():
            raise InvalidInput(f"{self.what}: missing {', '.join(sorted(missing))}")
        return self._encode_arguments(values)

    def _encode_arguments(self, values: Mapping[str, Any]) -> str:
        if self._hints is None:
            self._resolve_late()
        what = f"arguments of {self.what}"
        text = codec.encode(values, what, may_hold_unsortable_set=self._need_sorting)
        try:
            read = self._read_arguments(text)
        except InvalidInput as error:
            for name in values:
                if (why := find_unwritable((self._hints or {}).get(name, Any))) is not None:
                    raise InvalidInput(f"{what}: {name}: {why}") from error
            raise
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
        found = msgspec.structs.asdict(self._read_arguments(text))
        for name in [name for name, value in found.items() if value is _ABSENT]:
            del found[name]
        if are_all and (missing := self._required - found.keys()):  # as may be where they were submitted by SQL
            raise InvalidInput(f"{self.what}: missing {', '.join(sorted(missing))}")
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

    def call(self, given: tuple[Any, ...], arguments: dict[str, Any]) -> Any:
        """Call the function with what arriero gives and the decoded arguments."""
        positional = [arguments.pop(name) for name in self._positional_only if name in arguments]
        return self.function(*given, *positional, **arguments)

    def encode_result(self, value: Any) -> str:
        """The result as JSON text, proved to fit the declared type. Raises InvalidInput."""
        if self._check_result is None:
            self._resolve_late()
        what = f"result of {self.what}"
        text = codec.encode(value, what, may_hold_unsortable_set=self._result_needs_sorting)
        back = self.result(text)
        if self._check_result is not None:
            codec.refuse_difference(what, self._check_result, value, back)
        return text
