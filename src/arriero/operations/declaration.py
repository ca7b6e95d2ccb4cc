"""Declarations of operations: listings, and acts on one thing.

An operation has its name, a Struct of its arguments, its answer, the scope that it needs and its meaning, which is a function on
the session. ``cli/operation_commands.py`` builds the command from it, and ``server/operation_routes.py`` the route.
"""

import functools
import operator
from collections.abc import Awaitable, Callable, Mapping
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec

from ..client.session import Session
from ..client.task_verbs import check_signature
from ..errors import ArrieroError
from ..model.tokens import Scope


def say(
    description: str, metavar: str = "", *, words: tuple[str, ...] = (), null: str = "", option: str = ""
) -> msgspec.Meta:
    """Describe a field of arguments.

    Args:
        metavar: stands for its value in the usage of a command.
        words: that its option takes; none: any.
        null: the word that stands for None there, where that is something else than to leave the option out.
        option: its name on the command line; empty: that of the field.
    """
    named = {"option": option} if option else {}
    return msgspec.Meta(description=description, extra={"metavar": metavar, "words": words, "null": null, **named})


def say_app_name(description: str) -> msgspec.Meta:
    """Describe a field that holds the name of an App. ``--app`` is ``MODULE:APP`` in all commands."""
    return say(description, "NAME", option="--app-name")


def split_annotation(annotated: Any) -> tuple[Any, msgspec.Meta]:
    """Split the type of a field into what it is beside None, and what is said of it."""
    meta = msgspec.Meta()
    if get_origin(annotated) is Annotated:
        annotated, meta = get_args(annotated)
    is_union = get_origin(annotated) in (Union, UnionType)
    kinds = [one for one in get_args(annotated) if is_union and one not in (type(None), msgspec.UnsetType)]
    return (functools.reduce(operator.or_, kinds) if kinds else annotated), meta


class NoArguments(msgspec.Struct, frozen=True):
    """The arguments of a listing without a filter."""


class ReasonRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The arguments of an act that needs no others."""

    reason: Annotated[str, say("Why; it is kept in the history. Who asks is the token's name.")]


class Done(msgspec.Struct, frozen=True):
    """Outcome of an act.

    Args:
        answer: for programs. A command prints the items of its first field as a line each, if that is a tuple.
        says: sentences for operators.
        is_refused: a part of what was asked for was refused; the command exits with 1.
    """

    answer: msgspec.Struct
    says: tuple[str, ...]
    is_refused: bool = False


class Subject(msgspec.Struct, frozen=True):
    """Kind of thing that an act is on.

    Args:
        parameter: its name in the path.
        description: of the parameter, like "The Agent's name".
        metavar: stands for it in the usage of a command.
    """

    parameter: str
    description: str
    metavar: str


Act = Callable[[Session, str, str, Any], Awaitable[Done]]  # session, subject, who asks, arguments
List = Callable[[Session, Any], Awaitable[msgspec.Struct]]  # session, arguments


class OperationDeclaration(msgspec.Struct, frozen=True, kw_only=True):
    """An operation, as its command and its route are built from it.

    Args:
        noun: of what it is about; the group of its command, and in the plural the path of its route.
        name: as it is typed, like ``run-now``.
        function: an ``Act``; of a listing a ``List``.
        summary: one line for operators. The docstring of the function is the help of the command.
        arguments: the body, or the query of a listing; the options of the command. A field without a default is an argument
            of the command; ``say`` describes fields. Floats are seconds, which a command takes
            as 90, 15m, 2h or 1d.
        answer: its type. A field ``payloads`` says whether they are included.
        scopes: that a token needs, all of them.
        subject: what it is on; None: it is a listing.
        raises: errors that are part of its meaning, beside InvalidInput and StoreError.
        states: of its subject, in which it is allowed; none: any.
        is_narrowed: also for tokens that are restricted to Apps or workflows.
        example: of the arguments, as plain JSON values.
        history: which one keeps the reason.
        needs_scheduler: what it lets begin waits while no Scheduler is alive, so the command says if none is.
    """

    noun: str
    name: str
    function: Callable[..., Awaitable[Any]]
    summary: str
    arguments: type[msgspec.Struct]
    answer: type[msgspec.Struct]
    scopes: tuple[Scope, ...]
    subject: Subject | None = None
    raises: tuple[type[ArrieroError], ...] = ()
    states: tuple[str, ...] = ()
    is_narrowed: bool = False
    example: Mapping[str, Any] = {}
    history: str = "the store's history"
    needs_scheduler: bool = False

    @property
    def plural(self) -> str:
        """The noun in the plural."""
        return f"{self.noun}{'es' if self.noun.endswith('s') else 's'}"

    @property
    def path(self) -> str:
        """The path of its route."""
        of_kind = f"/v1/{self.plural}"
        return of_kind if self.subject is None else f"{of_kind}/{{{self.subject.parameter}}}:{self.name}"

    async def act(self, session: Session, subject: str, by: str, arguments: Any) -> Done:
        """Carry an act out. Raises: what its function raises; InvalidInput - who asks or why is not said."""
        check_signature(by, arguments.reason)
        done: Done = await self.function(session, subject, by, arguments)
        return done
