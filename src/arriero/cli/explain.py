"""``arriero task explain``: why a task is where it is, and what would move it."""

import asyncio
import os
from collections.abc import Mapping, Sequence

import click

from ..client.payload_record import ShownRecord
from ..client.row_shapes import build_output
from ..client.session import find_task
from ..client.task_explanation import (
    ActionAnswer,
    ShownPublished,
    build_explanation,
    list_published,
    list_results,
    load_explanation,
)
from ..explain.available_actions import AvailableAction
from ..explain.past import PersonAct
from ..explain.task import Explanation
from ..model import Instant, Loaded
from ..model.instants import as_instant
from ..model.progress import PublishedRow
from ..text.escaping import holds_password, one_line, shell_word
from ..text.format import format_count, format_instant_and_age, format_relative
from .history import print_record
from .options import json_option, store_option
from .output import print_json, print_text, print_trace, truncate
from .stores import load_store_configuration, open_store_to_read

RESULTS_SHOWN_MAX = 10  # the last ones
ACTS_SHOWN_MAX = 5  # the last ones; `arriero history` prints them all
STORE_VARIABLE = "ARRIERO_STORE"
NEEDS_TYPES = ("--arguments", "--result")  # checked against the types of an App


@click.command("explain", short_help="Explain why a task is in its state, and which commands are allowed.")
@click.argument("task_id", metavar="ID")
@store_option
@json_option
def explain_task(task_id: str, store: str | None, as_json: bool) -> None:
    """Say in plain words why a task is where it is, what it waits for, and which verbs would move it."""
    loaded, explanation, now, record, published = asyncio.run(_explain(task_id, store))
    typed = VerbCommandFormatter(task_id, store)
    if as_json:
        shown = build_explanation(loaded, explanation, now, record, published, typed.build_action, note=typed.note())
        print_json(shown)
    else:
        _print_explanation(loaded, explanation, now, typed, record, published)


async def _explain(
    task_id: str, given: str | None
) -> tuple[Loaded, Explanation, Instant, ShownRecord, Mapping[int, PublishedRow]]:
    async with open_store_to_read(given) as store:
        return await load_explanation(store, await find_task(task_id, store))


class VerbCommandFormatter:
    """Formats the command of a verb, with the store and the App where they must be named."""

    def __init__(self, task_id: str, store: str | None) -> None:
        self._task_id = task_id
        self._store = store
        self._is_secret = store is not None and holds_password(store)
        self._has_app = bool(load_store_configuration(store).app)

    def command(self, move: AvailableAction) -> str:
        """The command; words in capitals are to be filled in."""
        names = [self._task_id, move.step] if move.step else [self._task_id]
        options = [*move.options, "--reason", "TEXT"]
        if not self._has_app and any(option in NEEDS_TYPES for option in options):
            options += ["--app", "MODULE:APP"]
        written = [*map(shell_word, options), *self._store_words()]
        quoted = [shell_word(name) for name in names]
        words = [*written, "--", *quoted] if any(name.startswith("-") for name in names) else [*quoted, *written]
        return f"arriero task {move.verb} {' '.join(words)}"

    def build_action(self, action: AvailableAction) -> ActionAnswer:
        """Build a verb for programs."""
        return build_output(ActionAnswer, action, command="" if action.refused else self.command(action))

    def note(self) -> str:
        """Return what must be set before a command is typed; empty for nothing."""
        if not self._is_secret or self._store == os.environ.get(STORE_VARIABLE):
            return ""
        return f"set {STORE_VARIABLE} to the URL that you gave with --store; it is not shown, as a password is in it"

    def _store_words(self) -> list[str]:
        """``--store`` again if it was given; a URL with a password by a variable, which is refused while it is empty."""
        if self._store is None:
            return []
        return ["--store", f'"${STORE_VARIABLE}"' if self._is_secret else shell_word(self._store)]


def _print_explanation(
    loaded: Loaded,
    explanation: Explanation,
    now: Instant,
    typed: VerbCommandFormatter,
    record: ShownRecord,
    published: Mapping[int, PublishedRow],
) -> None:
    task = loaded.task
    paused = ", paused" if task.paused_at is not None else ""
    again = f", incarnation {task.incarnation}" if task.incarnation > 1 else ""
    submitted = f"submitted {format_relative(task.submitted_at, now)}"
    print_text(
        f"task {task.task_id} (number {task.task_no}) of workflow {task.workflow}: {task.state}{paused}{again}, {submitted}",
        hanging=2,
        state=task.state,
    )
    click.echo()
    for reason in explanation.reasons:
        _print_sentence(f"- {reason.says}")
        if len(reason.trace) > 1 or sum(len(one.frames) for one in reason.trace) > 1:  # else it was just said
            print_trace(reason.trace, indent=4)
        if reason.idempotency_key and reason.idempotency_key not in reason.says:
            click.echo(f"    idempotency key of {one_line(reason.step)}: {one_line(reason.idempotency_key)}")
        if reason.request:
            click.echo(f"    what was approved: {one_line(reason.request)}")
    _print_published(list(list_published(loaded, published)), now)
    _print_results(loaded)
    _print_acts(explanation.acts, now)
    print_record(record)
    allowed = [move for move in explanation.actions if not move.refused]
    click.echo("\nwhat you can do:" if allowed else "\nno verb would move it")
    if allowed and (note := typed.note()):
        _print_sentence(f"  ({note})")
    for move in allowed:
        _print_sentence(f"- {move.verb}: {move.does}")
        click.echo(f"    {one_line(typed.command(move))}")
    for move in explanation.actions:
        if move.refused:
            _print_sentence(f"- {move.verb} would be refused: {move.refused}")


def _print_published(published: Sequence[ShownPublished], now: Instant) -> None:
    if not published:
        return
    click.echo("\nwhat it published last:")
    for one in published[: 1 + RESULTS_SHOWN_MAX]:
        who = f"step {one.step}" if one.ordinal else "the workflow"
        at = format_instant_and_age(as_instant(one.at), now)
        _print_sentence(f"- {at} {who}: {truncate(bytes(one.value).decode())}")
    if len(published) > 1 + RESULTS_SHOWN_MAX:
        count = format_count(len(published) - 1 - RESULTS_SHOWN_MAX, "other step")
        _print_sentence(f"  and {count}; `arriero task show` prints all")


def _print_results(loaded: Loaded) -> None:
    results = list(list_results(loaded))
    if not results and loaded.task.output is None:
        return
    click.echo("\nwhat is recorded:")
    for one in results[-RESULTS_SHOWN_MAX:]:
        _print_sentence(f"- result of {one.step}: {truncate(bytes(one.result).decode())}")
    if len(results) > RESULTS_SHOWN_MAX:
        _print_sentence(
            f"  and {format_count(len(results) - RESULTS_SHOWN_MAX, 'earlier result')}; `arriero task show` prints all"
        )
    if loaded.task.output is not None:
        _print_sentence(f"- output: {truncate(loaded.task.output)}")


def _print_acts(acts: Sequence[PersonAct], now: Instant) -> None:
    if not acts:
        return
    click.echo("\nwhat operators did:")
    for act in acts[-ACTS_SHOWN_MAX:]:
        changed = f", and it went from {act.before} to {act.after}" if act.before != act.after else ""
        values = "".join(f"; {change}" for change in act.changes)
        _print_sentence(
            f'- {format_instant_and_age(act.at, now)} {act.by} asked for {act.verb}{changed}: "{act.reason}"{values}'
        )
    if len(acts) > ACTS_SHOWN_MAX:
        click.echo(f"  and {format_count(len(acts) - ACTS_SHOWN_MAX, 'earlier act')}; `arriero history` prints all")


def _print_sentence(text: str) -> None:
    print_text(text, first="  " if text.startswith("  ") else "", hanging=2)
