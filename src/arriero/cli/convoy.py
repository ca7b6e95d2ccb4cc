"""``arriero convoy``: what keys are doing, and what a person may do to one."""

import asyncio
from collections.abc import Callable
from typing import Any, Literal

import click
import msgspec

from .. import codec
from ..client.convoy import (
    NAMED,
    NAMED_MAX,
    SHOWN,
    WORDS,
    Convoy,
    ConvoyOutcome,
    ConvoyView,
    build_convoy_view,
    list_convoy_views,
    show_outcome,
)
from ..client.verb_commands import check_signature
from ..errors import InvalidInput, VerbRefused
from ..explain.convoys import format_convoy_command, format_ranges
from ..model import ConvoyVerb
from ..verb_rules import CONVOY_VERB_RULES
from .near_misses import NearMissGroup
from .options import (
    NUMBER,
    Option,
    declare_verb,
    format_refusal,
    format_seconds,
    json_option,
    parse_duration,
    signature_options,
    store_option,
)
from .output import format_time, print_json, print_table, print_text, truncate
from .prompts import print_nobody_runs
from .stores import open_operator, open_store_to_read

WORKFLOW = "workflow"  # what stands for: no policy of its own


class ConvoyVerbOutcome(msgspec.Struct, frozen=True):
    """The output of a verb with ``--json``; ``convoy``: as it stands now."""

    key: str
    verb: str
    outcome: Literal["done"]
    convoy: ConvoyView


@click.group(cls=NearMissGroup, invoke_without_command=True)
@click.pass_context
def convoy(context: click.Context) -> None:
    """Look at convoys, the tasks of one key that go one after the other, and act on them."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


# --- looking
@convoy.command("list", short_help="List the keys that are not idle.")
@click.option("--state", type=click.Choice(SHOWN), help="Only convoys in this state; else all but those that are idle.")
@click.option(
    "--limit", metavar="N", type=click.IntRange(1, 100_000), default=50, show_default=True, help="So many at most."
)
@click.option("--after", metavar="NO", type=NUMBER, default=0, help="Only convoys after this number.")
@store_option
@json_option
def list_convoys(state: str | None, limit: int, after: int, store: str | None, as_json: bool) -> None:
    """List the keys that are not idle, or those in one state, in the order of their first submission."""
    found = asyncio.run(_load_views(store, state, after, limit + 1))
    views = found[:limit]
    if as_json:
        for view in views:
            print_json(view)
    else:
        columns = ("no", "key", "state", "since", "waiting", "set aside", "waits for")
        print_table(columns, list(map(_format_cells, views)))
    if len(found) > limit:
        click.echo(f"arriero: there are more: --after {views[-1].no}", err=True)


async def _load_views(store: str | None, state: str | None, after: int, limit: int) -> list[ConvoyView]:
    found: list[ConvoyView] = []
    async with open_store_to_read(store) as opened:
        async for view in list_convoy_views(opened, state, after=after):
            found.append(view)
            if len(found) == limit:
                break
    return found


def _format_cells(view: ConvoyView) -> tuple[str, ...]:
    counts = (f"{view.waiting:,}", f"{view.set_aside:,}")
    return (str(view.no), view.key, view.state, format_time(view.since), *counts, truncate(view.waiting_for))


@convoy.command("show", short_help="Show one key: what it does, what it waits for, and who comes next.")
@click.argument("key", metavar="KEY")
@click.option(
    "--limit",
    metavar="N",
    type=click.IntRange(1, NAMED_MAX),
    default=NAMED,
    show_default=True,
    help="Name so many tasks that wait, and that were set aside, at most.",
)
@store_option
@json_option
def show_convoy(key: str, limit: int, store: str | None, as_json: bool) -> None:
    """Show one key: what it does, what it waits for, who comes next, what is missing and what was set aside."""
    view = asyncio.run(_load_view(key, limit, store))
    if as_json:
        print_json(view)
    else:
        _print_view(view)


async def _load_view(key: str, limit: int, store: str | None) -> ConvoyView:
    async with open_store_to_read(store) as opened:
        loaded = await opened.find_convoy(codec.check_id(key, "convoy"), limit)
        if loaded is None:
            raise InvalidInput(f"there is no convoy {key!r} in the store {opened.url}; see `arriero convoy list`")
        return build_convoy_view(loaded, opened.now())


def _print_view(view: ConvoyView) -> None:
    lines = {
        "convoy": f"{view.key} (number {view.no}), ordered by {view.ordering}",
        "state": view.state,
        "since": format_time(view.since),
        "waits for": view.waiting_for,
        "head": view.open_task or "",
        "next": _format_next_tasks(view),
        "missing": f"sequence {format_ranges(view.missing)}" if view.missing else "",
        "gap until": format_time(view.gap_until),
        "set aside": f"{view.set_aside:,}" if view.set_aside else "",
        "policy": _format_policy(view),
        "value": "" if view.value is None else truncate(msgspec.json.encode(view.value).decode()),
    }
    for name, value in lines.items():
        if value:
            print_text(value, first=f"{name + ':':17}", hanging=17)
    if view.set_aside_tasks:
        click.echo()
        print_table(("set aside", "reason"), [(task_id, truncate(reason)) for task_id, reason in view.set_aside_tasks])


def _format_next_tasks(view: ConvoyView) -> str:
    more = view.waiting - len(view.next_tasks)
    return ", ".join(view.next_tasks) + (f" and {more:,} more" if view.next_tasks and more > 0 else "")


def _format_policy(view: ConvoyView) -> str:
    policy = view.policy
    force = {} if policy is None else {"head": policy.head, "gap": policy.gap, "gap_within": policy.gap_within}
    told: list[str] = []
    for name, value in {**force, **view.own_policy}.items():
        shown = format_seconds(value) if isinstance(value, float) else str(value)
        own = " (its own)" if name in view.own_policy else ""
        told.append(f"{name.replace('_', ' ')} {shown}{own}")
    return "; ".join([*told, *(["else that of the workflow of each task"] if policy is None else [])])


# --- acting
class ConvoyVerbRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A verb that a person asks for, on one key."""

    verb: ConvoyVerb
    key: str
    by: str
    reason: str
    store: str | None
    as_json: bool


Send = Callable[[Convoy, dict[str, Any]], Any]
Says = Callable[[ConvoyView, ConvoyView], str]


def _verb_command(verb: ConvoyVerb, short_help: str, *own: Option) -> Callable[[Callable[..., None]], click.Command]:
    key: Option = click.argument("key", metavar="KEY")
    options: tuple[Option, ...] = (key, *own, signature_options("the convoy's history"), store_option, json_option)
    declare = declare_verb(verb, ConvoyVerbRequest, CONVOY_VERB_RULES, "convoys", short_help, options)

    def add(function: Callable[..., None]) -> click.Command:
        command = declare(function)
        convoy.add_command(command)
        return command

    return add


@_verb_command(
    ConvoyVerb.SET,
    "Give a key a policy of its own.",
    click.option("--head", type=click.Choice((*WORDS, WORKFLOW)), help="When its head is in error."),
    click.option("--gap", type=click.Choice((*WORDS, WORKFLOW)), help="When a number has not come in time."),
    click.option("--gap-within", metavar="DURATION", help="How long a number is waited for: 90, 15m, 2h; or workflow."),
)
def set_policy(request: ConvoyVerbRequest, head: str | None, gap: str | None, gap_within: str | None) -> None:
    """Give a key a policy of its own, also for what it waits for now.

    What is not named stays as it is; workflow: that part is again the one of each task's workflow.
    """
    given: dict[str, Any] = {}
    for name, word in (("head", head), ("gap", gap)):
        if word is not None:
            given[name] = None if word == WORKFLOW else word
    if gap_within is not None:
        given["gap_within"] = None if gap_within == WORKFLOW else _parse_gap_within(gap_within)
    if not given:
        raise InvalidInput("set what? Give at least one of --head, --gap and --gap-within")

    def says(before: ConvoyView, now: ConvoyView) -> str:
        goes_on = f"; {_format_next(now)}" if before.waiting_for != now.waiting_for else ""
        return f"convoy {now.key!r} has the policy {_format_policy(now)}{goes_on}"

    _execute(request, lambda convoy, who: convoy.set(**who, **given), says)


def _parse_gap_within(text: str) -> float:
    try:
        return parse_duration(text)
    except click.BadParameter as error:
        raise InvalidInput(f"--gap-within: {error.message}") from error


@_verb_command(ConvoyVerb.RELEASE, "Let a parked key go on.")
def release(request: ConvoyVerbRequest) -> None:
    """Let a parked key go on; if its head is still in error it waits for that."""
    _execute(
        request,
        lambda convoy, who: convoy.release(**who),
        lambda _, now: f"convoy {now.key!r} is released; {_format_next(now)}",
    )


@_verb_command(
    ConvoyVerb.SKIP,
    "Pass over the task in error, or what is missing.",
    click.option(
        "--seen",
        metavar="WHAT",
        help="The task in error, or the first missing number, as you saw it: no other is skipped.",
    ),
)
def skip(request: ConvoyVerbRequest, seen: str | None) -> None:
    """Pass over what a key stands still on: the task in error is set aside, or what is missing is not waited for.

    What was passed over comes back only by a person: `arriero task resubmit`.
    """

    def says(before: ConvoyView, now: ConvoyView) -> str:
        if before.open_task is not None and before.open_task != now.open_task:
            passed = f"task {before.open_task} is set aside"
        else:
            gone = [one for one in before.missing if one not in now.missing]
            passed = f"sequence {format_ranges(gone)} is skipped" if gone else "what was missing is skipped"
        return f"convoy {now.key!r}: {passed}; {_format_next(now)}"

    _execute(request, lambda convoy, who: convoy.skip(**who, seen=seen), says)


@_verb_command(ConvoyVerb.PARK, "Begin nothing more of a key until it is released.")
def park(request: ConvoyVerbRequest) -> None:
    """Begin nothing more of a key until it is released; a task that is under way goes to its end."""

    def says(before: ConvoyView, now: ConvoyView) -> str:
        ends = f"task {before.open_task} goes to its end, and " if before.state == "open" else ""
        return f"convoy {now.key!r} is parked; {ends}nothing more begins until {format_convoy_command(ConvoyVerb.RELEASE, now.key)}"

    _execute(request, lambda convoy, who: convoy.park(**who), says)


@_verb_command(
    ConvoyVerb.MOVE_TO_HEAD,
    "Let a task that waits come before all others that wait.",
    click.argument("task_id", metavar="ID"),
)
def move_to_head(request: ConvoyVerbRequest, task_id: str) -> None:
    """Let a task that waits come before all others of its key that wait; not where a sequence is the order."""

    def says(before: ConvoyView, now: ConvoyView) -> str:
        if now.open_task == task_id:
            return f"convoy {now.key!r}: task {task_id} has its turn"
        return f"convoy {now.key!r}: task {task_id} comes before all others that wait; it waits for {now.waiting_for}"

    _execute(request, lambda convoy, who: convoy.move_to_head(task_id, **who), says)


def _format_next(view: ConvoyView) -> str:
    """Describe how a key goes on after a verb."""
    match view.state:
        case "open":
            return f"it goes on with task {view.open_task}"
        case "parked":
            return f"it stays parked until {format_convoy_command(ConvoyVerb.RELEASE, view.key)}"
        case "idle" if not view.waiting:
            return "nothing waits in it"
        case "idle":
            return f"it waits for {view.waiting_for}"
        case _:
            return f"it still waits for {view.waiting_for}"


def _execute(request: ConvoyVerbRequest, send: Send, says: Says) -> None:
    """Carry the verb out and tell what came of it. Raises: InvalidInput - a refusal; StoreError."""
    check_signature(request.by, request.reason)
    before, now, nobody = asyncio.run(_execute_between_views(request, send))
    if request.as_json:
        print_json(ConvoyVerbOutcome(now.key, request.verb, "done", now))
    else:
        print_text(says(before, now), hanging=2)
    print_nobody_runs(nobody)


async def _execute_between_views(request: ConvoyVerbRequest, send: Send) -> tuple[ConvoyView, ConvoyView, str]:
    """The convoy before and after, and that nobody runs it, if so."""
    async with open_operator(None, request.store) as app:
        handle = app.convoy(request.key)
        before = await handle.view()
        try:
            outcome: ConvoyOutcome = await send(handle, {"by": request.by, "reason": request.reason})
        except VerbRefused as refused:
            text = format_refusal(refused).replace(ConvoyVerb.MOVE_TO_HEAD, "move-to-head")  # as it is typed
            raise InvalidInput(text) from refused
        after = show_outcome(await handle.view(), outcome)
        return before, after, await app.session.describe_missing_scheduler()
