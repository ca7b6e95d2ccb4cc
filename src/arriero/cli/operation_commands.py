"""Builds the commands of declared operations: arguments and options from the fields of a Struct, and the output."""

import asyncio
import functools
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, get_origin

import click
import msgspec

from ..client.json_payloads import check_json
from ..client.session import Session
from ..client.task_verbs import check_signature
from ..model.tags import gather_tags, parse_tag
from ..operations.declaration import Done, OperationDeclaration, split_annotation
from ..operations.problems import ExitCode
from ..text.format import format_seconds
from .near_misses import NearMissGroup
from .options import (
    Option,
    json_option,
    parse_duration,
    parse_duration_or_instant,
    print_empty,
    print_nobody_runs,
    read_option,
    signature_options,
    store_option,
)
from .output import print_json, print_table, print_text
from .stores import open_operator

Cells = Callable[[Any], tuple[str, ...]]


def build_group(name: str, text: str) -> click.Group:
    """Build a group of commands that shows its help when it is called without one."""

    def show_help() -> None:
        context = click.get_current_context()
        if context.invoked_subcommand is None:
            click.echo(context.get_help())

    return NearMissGroup(name, help=text, invoke_without_command=True, callback=show_help)


def add_listing(
    group: click.Group, operation: OperationDeclaration, columns: Sequence[str], format_cells: Cells
) -> None:
    """Add the command of a listing. ``format_cells``: the cells of one item."""

    def run(store: str | None, as_json: bool, **given: Any) -> None:
        async def load(session: Session) -> msgspec.Struct:
            answer: msgspec.Struct = await operation.function(session, read_arguments(operation.arguments, given))
            return answer

        answer = asyncio.run(_ask(store, load))
        views = getattr(answer, answer.__struct_fields__[0])
        if as_json:
            print_answer(answer)
        elif views:
            print_table(columns, [format_cells(view) for view in views])
        else:
            print_empty(operation.plural, format_options(read_arguments(operation.arguments, given)))

    _add(group, operation, run, build_options(operation.arguments))


def add_act(group: click.Group, operation: OperationDeclaration) -> None:
    """Add the command of an act."""
    assert operation.subject is not None
    subject: Option = click.argument("subject", metavar=operation.subject.metavar)

    def run(subject: str, by: str, store: str | None, as_json: bool, **given: Any) -> None:
        arguments: Any = read_arguments(operation.arguments, given)
        check_signature(by, arguments.reason)

        async def act(session: Session) -> tuple[Any, str]:
            done = await operation.act(session, subject, by, arguments)
            return done, await session.describe_missing_scheduler() if operation.needs_scheduler else ""

        done, nobody = asyncio.run(_ask(store, act))
        print_done(done, as_json=as_json)
        print_nobody_runs(nobody)
        if done.is_refused:
            click.get_current_context().exit(ExitCode.NO)

    _add(group, operation, run, [subject, *build_options(operation.arguments), signature_options(operation.history)])


def _add(
    group: click.Group, operation: OperationDeclaration, run: Callable[..., None], options: Sequence[Option]
) -> None:
    command: Callable[..., None] = run
    decorators: list[Option] = [*options, store_option, json_option]
    for option in reversed(decorators):
        command = option(command)
    text, epilog = operation.function.__doc__, None
    if operation.states:
        epilog = f"For {operation.plural} that are: {', '.join(operation.states)}."
    declare = click.command(operation.name, short_help=operation.summary, help=text, epilog=epilog)
    group.add_command(declare(command))


async def _ask(store: str | None, ask: Callable[[Session], Any]) -> Any:
    async with open_operator(None, store) as operator:
        return await ask(operator.session)


def print_answer(answer: msgspec.Struct) -> None:
    """Print an answer as JSON: a line for each of its items, if it has a list of them in its first field."""
    first = getattr(answer, answer.__struct_fields__[0])
    for value in first if isinstance(first, tuple) else (answer,):
        print_json(value)


def print_done(done: Done, *, as_json: bool) -> None:
    """Print the outcome of an act."""
    if as_json:
        print_answer(done.answer)
        return
    for text in done.says:
        print_text(text, hanging=2)


# --- options
def add_options(arguments: type[msgspec.Struct], *, without: Sequence[str] = ()) -> Option:
    """Build the decorator that adds the options of a Struct to a command."""

    def add(function: Callable[..., None]) -> Callable[..., None]:
        for option in reversed(build_options(arguments, without=without)):
            function = option(function)
        return function

    return add


def gather_options(arguments: type[msgspec.Struct], name: str) -> Option:
    """Build the decorator that adds the options of a Struct to a command, whose function gets them as one value."""
    names = [field.name for field in msgspec.structs.fields(arguments)]

    def gather(function: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(function)
        def run(*positional: Any, **given: Any) -> None:
            gathered = read_arguments(arguments, {one: given.pop(one) for one in names})
            function(*positional, **{name: gathered}, **given)

        return add_options(arguments)(run)

    return gather


def format_options(given: msgspec.Struct) -> str:
    """Format the arguments that were given as the options of a command; empty for none."""
    texts: list[str] = []
    for field in msgspec.structs.fields(given):
        value = getattr(given, field.name)
        if value is None or value in ({}, ()):
            continue
        name = name_option(field)
        if value is False:
            texts.append(name.replace("--", "--not-", 1))
        elif value is True:
            texts.append(name)
        elif isinstance(value, float):
            texts.append(f"{name} {format_seconds(value)}")
        elif isinstance(value, dict):
            texts += [f"{name} {one}={text}" for one, text in value.items()]
        elif isinstance(value, datetime):
            texts.append(f"{name} {value.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}")
        else:
            texts.append(f"{name} {value}")
    return " ".join(texts)


def build_options(arguments: type[msgspec.Struct], *, without: Sequence[str] = ()) -> list[Option]:
    """Build an option for each field with a default, and an argument for each other one but the reason."""
    fields = msgspec.structs.fields(arguments)
    return [_build_option(field) for field in fields if field.name not in ("reason", *without)]


def name_option(field: msgspec.structs.FieldInfo) -> str:
    """Return the name of a field's option; without dashes before it and inside, it is what click passes the value by."""
    _, meta = split_annotation(field.type)
    return str((meta.extra or {}).get("option", "--" + field.name.replace("_", "-")))


def build_option_names(arguments: type[msgspec.Struct]) -> dict[str, str]:
    """Return the option of each field of a Struct, for errors."""
    return {field.name: name_option(field) for field in msgspec.structs.fields(arguments)}


_NULL = object()  # the value of an option that stands for None


def _build_option(field: msgspec.structs.FieldInfo) -> Option:
    kind, meta = split_annotation(field.type)
    extra, name = meta.extra or {}, name_option(field)
    if get_origin(kind) in (dict, tuple):
        return _build_repeated_option(field.name, name, meta, of_tags=get_origin(kind) is dict)
    if kind is bool and field.default is None:
        return click.option(f"{name}/{name.replace('--', '--not-', 1)}", default=None, help=meta.description)
    if kind is bool:
        return click.option(name, is_flag=True, help=meta.description)
    parse, metavar, form = _TYPES.get(kind, (click.STRING, field.name.upper(), ""))
    if extra.get("metavar") == "SECONDS":
        parse, form = click.FLOAT, ""
    if words := extra.get("words"):
        parse, metavar = click.Choice(words), f"[{'|'.join(words)}]"
    if kind is msgspec.Raw:
        parse = _build_json_reader(name)
    settings: dict[str, Any] = {"metavar": extra.get("metavar") or metavar, "required": field.required}
    if field.required and "option" not in extra:
        return click.argument(field.name, type=parse, **settings)
    if isinstance(field.default, str | int) and field.default != "":
        settings |= {"default": field.default, "show_default": True}
    null = extra.get("null")
    text = (meta.description or "") + form + (f" Or {null}." if null and not words else "")
    names = [name, field.name] if name == "--app-name" else [name]  # the others are passed by the name of the option
    return click.option(*names, type=_read_null(parse, null) if null else parse, help=text, **settings)


def _build_repeated_option(field: str, name: str, meta: msgspec.Meta, *, of_tags: bool) -> Option:
    """Build an option that may be given several times: of tags, or of texts."""
    settings: dict[str, Any] = {"metavar": (meta.extra or {})["metavar"], "help": meta.description, "multiple": True}
    if of_tags:
        settings["type"] = parse_tag
    return click.option(*([name, field] if name == "--tag" else [name]), **settings)


def _build_json_reader(option: str) -> Callable[[str], msgspec.Raw]:
    """Build the type of an option that takes JSON; it raises InvalidInput for a text that is none, or doubtful."""

    def read_json(text: str) -> msgspec.Raw:
        given = read_option(text, option)
        check_json(given, option)
        return msgspec.Raw(given.encode())

    return read_json


def _read_null(parse: Callable[[str], Any], null: str) -> Callable[[str], Any]:
    return lambda text: _NULL if text == null else parse(text)


def read_arguments(arguments: type[msgspec.Struct], given: dict[str, Any]) -> Any:
    """Build the arguments from the options of a command; one that was not given has the default of its field."""
    named = {name: None if value is _NULL else value for name, value in given.items() if value not in (None, ())}
    for name, value in named.items():
        if isinstance(value, tuple) and isinstance(value[0], tuple):  # pairs, as ``parse_tag`` gives them
            named[name] = gather_tags(value)
    return arguments(**named)


def parse_instant(text: str) -> datetime:
    """Parse an instant in ISO 8601 with a time zone; the type of an argument. Raises BadParameter."""
    try:
        when = datetime.fromisoformat(text.strip())
    except ValueError:
        raise click.BadParameter(f"{text!r} is not an instant; write it like 2026-11-24T03:00+01:00") from None
    if when.tzinfo is None:
        raise click.BadParameter(
            f"{text!r} names no time zone; write it like 2026-11-24T03:00+01:00, or with a Z for UTC"
        )
    return when


_TYPES: dict[Any, tuple[Any, str, str]] = {  # of options, with what stands for the value, and how it is written
    float: (parse_duration, "DURATION", " Write 90, 15m, 2h or 1d."),
    msgspec.Raw: (click.STRING, "JSON", " A dash (-) reads it from standard input."),
    int: (int, "N", ""),
    datetime: (parse_instant, "INSTANT", " Write 2026-11-24T03:00+01:00."),
    float | datetime: (parse_duration_or_instant, "WHEN", " Write 2h, or 2026-11-20T14:15Z."),
}
