"""``arriero question list``: the questions of tasks that wait for operators."""

import asyncio

import click

from ..client.questions import OpenQuestion, build_open_question, check_of
from .near_misses import NearMissGroup
from .options import NUMBER, json_option, print_empty, print_note, store_option
from .output import format_time, print_json, print_table, truncate
from .stores import open_store_to_read


@click.group(cls=NearMissGroup, short_help="List the questions of tasks to operators.")
def question() -> None:
    """List the questions that tasks ask. `arriero task answer` answers one."""


@question.command("list", short_help="List open questions.")
@click.option("--of", metavar="NAME", help="Only questions to these operators, as the code names them.")
@click.option(
    "--limit",
    metavar="N",
    type=click.IntRange(1, 10_000),
    default=50,
    show_default=True,
    help="Maximum number of questions.",
)
@click.option(
    "--after", metavar="NO", type=NUMBER, default=0, help="Only questions after this number, which is the next page."
)
@store_option
@json_option
def list_questions(of: str | None, limit: int, after: int, store: str | None, as_json: bool) -> None:
    """List open questions in the order in which they were asked.

    With --json each has the JSON Schema of its answer and the command that answers it.
    """
    found, has_more = asyncio.run(_load(check_of(of), after, limit, store))
    if as_json:
        for one in found:
            print_json(one)
    elif not found:
        print_empty("open questions", f"--of {of}" if of else "")
    else:
        columns = ("no", "task", "name", "operators", "since", "until", "question")
        print_table(columns, [_format_cells(one) for one in found], optional=("operators", "until"))
        if open_ones := [one for one in found if not one.is_over]:
            print_note(f"answer one: {open_ones[0].command}")
        if over := [one for one in found if one.is_over]:
            print_note(f"no answer is taken any longer where the time is over; why the task waits: {over[0].command}")
    if has_more:
        print_note(f"there are more; --after {found[-1].number} shows the next")


async def _load(of: str, after: int, limit: int, url: str | None) -> tuple[list[OpenQuestion], bool]:
    async with open_store_to_read(url) as store:
        rows = await store.questions(of=of, after=after, limit=limit + 1)
        return [build_open_question(row, store.now()) for row in rows[:limit]], len(rows) > limit


def _format_cells(one: OpenQuestion) -> tuple[str, ...]:
    operators = "" if one.operators == 1 else str(one.operators)
    until = "" if one.until is None else format_time(one.until) + ", over" * one.is_over
    return (str(one.number), one.task_id, one.name, operators, format_time(one.since), until, truncate(one.question))
