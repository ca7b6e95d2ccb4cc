"""``python -m lab.simulation --seeds FROM:TO``: exit 0 when all are clean, 1 at violations."""

import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial

import click
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TimeRemainingColumn

from .faults import ELECTION, KINDS
from .keys import HAPPENING
from .seeds import run_seed
from .world import Result


def _seeds(text: str) -> range:
    first, _, end = text.partition(":")
    try:
        return range(int(first), int(end) if end else int(first) + 1)
    except ValueError:
        raise click.BadParameter(f"{text!r}; give one seed, or FROM:TO") from None


def _run_one(seed: int, *, has_election: bool, twice: bool) -> tuple[Result, bool]:
    """Run one seed. Returns its result, and whether a second run of it gave another trace."""
    result = run_seed(seed, has_election=has_election)
    return result, twice and run_seed(seed, has_election=has_election).trace != result.trace


@contextmanager
def _run_all(
    seeds: range, processes: int, *, has_election: bool, twice: bool
) -> Iterator[Iterator[tuple[Result, bool]]]:
    """Give the outcome of each seed, in the order of the seeds. Leaving the context stops the seeds that have not begun."""
    run = partial(_run_one, has_election=has_election, twice=twice)
    if processes == 1:
        yield map(run, seeds)
        return
    with ProcessPoolExecutor(processes) as pool:
        try:
            yield pool.map(run, seeds, chunksize=5)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _show_progress() -> Progress:
    console = Console(stderr=True)
    columns = (*Progress.get_default_columns()[:2], MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=console, disable=not console.is_terminal, transient=True)


def _tell(result: Result, options: str) -> None:
    click.echo(f"seed {result.seed}: {len(result.violations)} violations")
    for violation in result.violations[:10]:
        click.echo(f"  {violation.invariant} {violation.task or 'store'}: {violation.detail}")
    click.echo(f"  repeat it with: python -m lab.simulation --seeds {result.seed}{options}")


@click.command()
@click.option("--seeds", default="0:200", help="One seed, or FROM:TO.")
@click.option("--stop-at-first", is_flag=True, help="End at the first seed with a violation.")
@click.option("--twice", is_flag=True, help="Run every seed twice and compare the traces.")
@click.option("--no-election", is_flag=True, help="Let every Supervisor act all the time, as if each led.")
@click.option(
    "--processes", default=1, type=click.IntRange(min=1), help="Seeds that run at a time, each in a process of its own."
)
def main(seeds: str, stop_at_first: bool, twice: bool, no_election: bool, processes: int) -> None:
    """Run simulated worlds and check every invariant they can show."""
    fired: Counter[str] = Counter()
    states: Counter[str] = Counter()
    happened: Counter[str] = Counter()
    bad = count = 0
    simulated = 0.0
    began = time.monotonic()
    chosen = _seeds(seeds)
    with (
        _run_all(chosen, processes, has_election=not no_election, twice=twice) as outcomes,
        _show_progress() as progress,
    ):
        for result, differs in progress.track(outcomes, total=len(chosen), description="seeds"):
            count += 1
            fired.update(result.fired)
            states.update(result.states)
            happened.update(result.happened)
            simulated += result.virtual_seconds
            bad += differs or bool(result.violations)
            if differs:
                click.echo(f"seed {result.seed}: two runs differ")
            if result.violations:
                _tell(result, " --no-election" if no_election else "")
                if stop_at_first:
                    break
    seconds = time.monotonic() - began
    click.echo(f"{count} seeds, {bad} with violations, {simulated:,.0f} simulated seconds in {seconds:.1f} s")
    click.echo(f"tasks: {dict(states)}; faults: {dict(fired)}; convoys: {dict(happened)}")
    kinds = [kind for kind in KINDS if not (no_election and kind in ELECTION)]
    silent = [kind for kind in kinds if not fired[kind]] + sorted(HAPPENING - happened.keys())
    if count >= 50 and silent:
        click.echo(f"these never happened, so nothing was shown about them: {', '.join(silent)}")
        bad += 1
    sys.exit(1 if bad else 0)


if __name__ == "__main__":  # processes of the pool import this module again
    main()
