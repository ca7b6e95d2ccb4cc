"""``arriero task fork``: a new task that does another one again from a step on."""

import asyncio

import click

from ..client.forks import ForkAnswer, ForkOptions, preview_fork, submit_fork
from ..client.task_shapes import ShownStep, TaskAnswer
from ..client.task_verbs import load_task_to_act
from ..text.escaping import shell_argument
from .options import by_option, json_option, print_nobody_runs, store_option
from .output import print_json, print_text
from .stores import open_operator


@click.command("fork", short_help="Do a task again from a step on, as a new task.")
@click.argument("task_id", metavar="ID")
@click.option(
    "--from",
    "from_step",
    metavar="STEP",
    required=True,
    help="The step from which on it is done again: its label, or its number in `arriero task show`.",
)
@click.option("--task-id", "new_id", metavar="ID", help="Id of the new task. The same id again is the same fork.")
@click.option("--convoy", metavar="KEY", help="Convoy of the new task. By default it is in none.")
@by_option
@click.option("--reason", metavar="TEXT", default="", help="The reason, which is kept in the history of the new task.")
@click.option("--dry-run", is_flag=True, help="Show what would be copied and what done again, and change nothing.")
@store_option
@json_option
def fork_task(
    task_id: str,
    from_step: str,
    new_id: str | None,
    convoy: str | None,
    by: str,
    reason: str,
    dry_run: bool,
    store: str | None,
    as_json: bool,
) -> None:
    """Submit a new task that does another one again from a step on. When this returns, the new task is durable.

    It has the results before that step as copies. Their effects stay the first task's: only that one undoes them, each once.
    """
    options = ForkOptions(task_id=new_id, convoy=convoy, by=by, reason=reason)
    answer, nobody = asyncio.run(_fork(task_id, from_step, options, store, dry_run=dry_run))
    if as_json:
        print_json(answer)
    else:
        _print_fork(answer)
    print_nobody_runs(nobody)


async def _fork(
    task_id: str, from_step: str, options: ForkOptions, store: str | None, *, dry_run: bool
) -> tuple[ForkAnswer, str]:
    """The fork, and that nobody runs it, if so."""
    async with open_operator(None, store) as on:
        loaded = await load_task_to_act(on.session, on.task(task_id).id)
        if dry_run:
            return await preview_fork(on.session, loaded, from_step, options), ""
        answer = await submit_fork(on.session, loaded, from_step, options)
        return answer, await on.session.describe_missing_scheduler(of=loaded.task.app)


def _print_fork(answer: ForkAnswer) -> None:
    of = f"task {answer.forked_from} from step {answer.forked_step} on"
    if answer.outcome == "would_be_done":
        print_text(f"fork would be accepted; it does {of} again", hanging=2)
    else:
        existed = "" if answer.created else " (it existed before)"
        print_text(f"task {answer.id} does {of} again{existed}", hanging=2)
    owner = f"their effects stay task {answer.forked_from}'s" if answer.copied else ""
    print_text(f"copied: {', '.join(answer.copied) or 'nothing'}{owner and '; '}{owner}", hanging=2)
    if answer.again:
        print_text(f"done again: {', '.join(answer.again)}; each has happened there, or may have", hanging=2)
    if answer.outcome == "done" and answer.id is not None:
        print_text(f"next: arriero task show {shell_argument(answer.id)}")


def format_origin(one: TaskAnswer) -> str:
    """Format which task a fork does again; empty: it is none."""
    return "" if one.forked_from is None else f"{one.forked_from}, from its step {one.forked_step} on"


def describe_copy(step: ShownStep) -> list[str]:
    """Describe which task has done a step that a fork has as a copy; nothing of another step."""
    if step.copied_from is None:
        return []
    return [f"copied from {step.copied_from or 'a task that was purged'}, step {step.copied_step}"]
