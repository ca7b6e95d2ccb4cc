"""``python -m lab.simulation --seeds FROM:TO``: exit 0 when all are clean, 1 at violations."""

import sys
import time
from collections import Counter

import click

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
def main(seeds: str, stop_at_first: bool, twice: bool, no_election: bool) -> None:
    """Run simulated worlds and check every invariant they can show."""
    fired: Counter[str] = Counter()
    states: Counter[str] = Counter()
    happened: Counter[str] = Counter()
    bad = count = 0
    simulated = 0.0
    began = time.monotonic()
    for seed in _seeds(seeds):
        result = run_seed(seed, has_election=not no_election)
        count += 1
        fired.update(result.fired)
        states.update(result.states)
        happened.update(result.happened)
        simulated += result.virtual_seconds
        if twice and run_seed(seed, has_election=not no_election).trace != result.trace:
            click.echo(f"seed {seed}: two runs differ")
            bad += 1
        if result.violations:
            bad += 1
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


main()
