"""From the raw figures of the runs to rows, and from rows to a table."""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table
from works import OWN, Goal, Work

Figures = Mapping[str, float]
Verdict = tuple[bool, str]

REPORT_COLUMNS = 120  # where no terminal says how wide it is


@dataclass(frozen=True)
class Row:
    """One figure of one side over all runs.

    Attributes:
        side: the bare name stands for its best way, named in ``settings``; the others carry theirs (``dbos queue``).
        ratio_to: other side to this median divided by that side's.
        settings: versions and settings the side ran with, as it saw them itself.
    """

    work: str
    store: str
    side: str
    figure: str
    unit: str
    median: float
    min: float
    max: float
    ratio_to: dict[str, float] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)


def rows_of(
    work: Work, store: str, runs: Mapping[tuple[str, str], Sequence[Figures]], settings: Mapping[str, Mapping[str, str]]
) -> list[Row]:
    """Condense what was measured.

    Args:
        runs: (side, way) to the figures of each of its runs, at least one.
        settings: side to its versions and settings.
    Returns: for each side a row per figure, the best of its ways first.
        arriero's rows carry the ratios to every other side's best, unless that is 0.
    """
    rows: list[Row] = []
    best_of: dict[str, list[Row]] = {}
    for side in dict.fromkeys(side for side, _ in runs):
        ways = {way: figures for (of, way), figures in runs.items() if of == side}
        first_figure = next(iter(work.figures))
        best_way = work.best(ways, key=lambda way: median(run[first_figure] for run in ways[way]))
        best_of[side] = _condense(work, store, side, ways.pop(best_way), _with_way(settings[side], best_way))
        rows += best_of[side]
        for way, figures in ways.items():
            rows += _condense(work, store, f"{side} {way}", figures, _with_way(settings[side], way))
    for index, row in enumerate(best_of.get(OWN, ())):
        for side, others in best_of.items():
            if side != OWN and others[index].median:
                row.ratio_to[side] = row.median / others[index].median
    return rows


def _condense(work: Work, store: str, side: str, runs: Sequence[Figures], settings: Mapping[str, str]) -> list[Row]:
    rows = []
    for figure, unit in work.figures.items():
        values = [run[figure] for run in runs]
        spread = (median(values), min(values), max(values))
        rows.append(Row(work.name, store, side, figure, unit, *spread, settings=dict(settings)))
    return rows


def _with_way(settings: Mapping[str, str], way: str) -> dict[str, str]:
    return {**settings, "way": way} if way else dict(settings)


def print_table(rows: Sequence[Row], runs: int) -> None:
    """Print the rows, and under them what they were measured with."""
    console = Console(width=None if sys.stdout.isatty() else REPORT_COLUMNS)
    table = Table(title=f"medians of {runs} runs (w7, w8, outage and takeover one), all sides in turn")
    for column in ("work", "store", "side", "figure"):
        table.add_column(column)
    for column in ("median", "min", "max"):
        table.add_column(column, justify="right")
    table.add_column("unit")
    table.add_column(f"{OWN} divided by")
    for before, row in zip([None, *rows], rows, strict=False):
        if before is not None and before.work != row.work:
            table.add_section()
        way = row.settings.get("way", "")
        side = f"{row.side} ({way})" if way and not row.side.endswith(way) else row.side
        spread = [number(value) for value in (row.median, row.min, row.max)]
        ratios = ", ".join(f"{other} {number(ratio)}" for other, ratio in row.ratio_to.items())
        table.add_row(row.work, row.store, side, row.figure, *spread, row.unit, ratios)
    console.print(table)
    for side, settings in _settings_of(rows).items():
        console.print(f"{side}: " + ", ".join(f"{name} {value}" for name, value in settings.items()), highlight=False)


def _settings_of(rows: Iterable[Row]) -> dict[str, dict[str, str]]:
    """What all sides had in common, then what each had of its own."""
    of_side: dict[str, dict[str, str]] = {}
    for row in rows:
        of_side.setdefault(row.side.partition(" ")[0], {}).update(row.settings)
    common = dict(set.intersection(*(set(settings.items()) for settings in of_side.values())))
    shown = {"all": {name: common[name] for name in sorted(common)}}
    for side, settings in of_side.items():
        shown[side] = {name: value for name, value in settings.items() if name not in {*common, "way"}}
    return {side: settings for side, settings in shown.items() if settings}


def number(value: float) -> str:
    """The digits that matter of a measured value: three."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def write_json(rows: Sequence[Row], file: Path) -> None:
    """Write the rows as a JSON array of objects."""
    file.write_text(json.dumps([asdict(row) for row in rows], indent=2) + "\n")


def judged(rows: Sequence[Row], goals: Iterable[Goal], works: Sequence[str], stores: Sequence[str]) -> list[Verdict]:
    """For each goal of these works and stores: whether it was reached, and a line that says so."""
    verdicts: list[Verdict] = []
    for goal in goals:
        for store, bound in goal.bounds.items():
            if goal.work not in works or store not in stores:
                continue
            asked = (goal.work, store, OWN, goal.figure)
            own = next((row for row in rows if (row.work, row.store, row.side, row.figure) == asked), None)
            value = None if own is None else own.ratio_to.get(goal.to) if goal.to else own.median
            what = f"{goal.work} on {store}, {goal.figure}" + (f" to {goal.to}" if goal.to else "")
            sign = "at least" if goal.at_least else "at most"
            if value is None:
                verdicts.append((False, f"not measured: {what}, wants {sign} {number(bound)}"))
                continue
            reached = value >= bound if goal.at_least else value <= bound
            verdict = "reached" if reached else "MISSED"
            verdicts.append((reached, f"{verdict}: {what} {number(value)}, wants {sign} {number(bound)}"))
    return verdicts
