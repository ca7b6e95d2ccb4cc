"""What a demonstration showed, for people and as figures by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table
from rich.text import Text

from .books import Books, Discrepancy, Line, as_number, unit_for_people
from .election import ElectionReport, as_election_figures, describe_election
from .ledger import SetAside
from .outage_report import OutageReport, as_outage_figures, describe_outage
from .progress import Counts
from .turns import Turns

LISTED_MAX = 20
"""Discrepancies and lines set aside shown to people; the figures hold all of them."""


@dataclass(frozen=True)
class Summary:
    """The whole outcome; ``problems`` says in words why it is no success, apart from the discrepancies of books and order.

    ``outage`` None: none was asked for, or the history cannot be read. ``election`` None: the workers supervised.
    """

    orders: int
    set_aside: tuple[SetAside, ...]
    counts: Counts
    seconds: float
    processes: int
    kills: int
    kills_planned: int
    faults_planned: frozenset[str]
    faults_fired: Mapping[str, int]
    books: Books
    turns: Turns
    is_history_clean: bool
    outage: OutageReport | None
    election: ElectionReport | None
    problems: tuple[str, ...]

    @property
    def is_success(self) -> bool:
        return self.books.are_balanced and self.turns.are_kept and self.is_history_clean and not self.problems

    @property
    def discrepancies(self) -> tuple[Discrepancy, ...]:
        """Of the books, then of the order."""
        return (*self.books.discrepancies, *self.turns.discrepancies)


def as_figures(summary: Summary) -> dict[str, object]:
    """The summary as JSON figures by name; money in pence."""
    books, counts = summary.books, summary.counts
    return {
        "ok": summary.is_success,
        "orders": summary.orders,
        **{state: books.states.get(state, 0) for state in ("processed", "compensated", "held")},
        "set_aside": [asdict(line) for line in summary.set_aside],
        "seconds": round(summary.seconds, 1),
        "steps": counts.steps_done,
        "steps_per_second": round(counts.steps_done / max(summary.seconds, 0.001), 1),
        "retries": counts.retries,
        "undos": counts.undos,
        "processes": summary.processes,
        "kills": summary.kills,
        "kills_planned": summary.kills_planned,
        "faults_planned": sorted(summary.faults_planned),
        "faults_fired": dict(summary.faults_fired),
        "outage": None if summary.outage is None else as_outage_figures(summary.outage),
        "election": None if summary.election is None else as_election_figures(summary.election),
        "books_balanced": books.are_balanced,
        "books": {f"{line.operation.service}_{line.operation.name}": _line_figures(line) for line in books.lines},
        "net_pence": sum(line.operation.sign * line.net for line in books.lines if line.operation.unit == "pence"),
        "order_kept": summary.turns.are_kept,
        "order": _order_figures(summary.turns),
        "history_clean": summary.is_history_clean,
        "discrepancies": [asdict(discrepancy) for discrepancy in summary.discrepancies],
        "problems": list(summary.problems),
    }


def show(summary: Summary, console: Console) -> None:
    """Print the summary for people."""
    console.print(_books_table(summary.books))
    for words in _words(summary):
        # Not wrapped: in a log each line is found whole.
        console.print(words, soft_wrap=True)


def _line_figures(line: Line) -> dict[str, object]:
    return {
        "unit": line.operation.unit,
        "done": line.done,
        "undone": line.undone,
        "net": line.net,
        "expected": line.expected,
    }


def _order_figures(turns: Turns) -> dict[str, object]:
    return {
        "customers": turns.customers,
        "operations": turns.operations,
        "out_of_order": len(turns.discrepancies),
        "set_aside": list(turns.set_aside),
    }


def _words(summary: Summary) -> Iterator[Text]:
    yield _facts(summary)
    if summary.outage is not None:
        yield from map(Text, describe_outage(summary.outage))
    if summary.election is not None:
        yield from map(Text, describe_election(summary.election))
    yield from (Text(f"set aside: line {line.line}: {line.reason}") for line in summary.set_aside[:LISTED_MAX])
    yield from _more(len(summary.set_aside), "lines set aside")
    passed = summary.turns.set_aside
    yield from (
        Text(f"order {id_}: set aside and held, its customer's later orders went on") for id_ in passed[:LISTED_MAX]
    )
    yield from _more(len(passed), "orders set aside")
    for found in (summary.books.discrepancies, summary.turns.discrepancies):
        yield from (Text(f"order {each.order_id}: {each.reason}", style="red") for each in found[:LISTED_MAX])
        yield from _more(len(found), "discrepancies")
    yield from (Text(problem, style="red") for problem in summary.problems)
    if summary.is_success:
        told = (
            "The books balance: each order happened once as a whole or left no trace, each customer's in their order."
        )
        yield Text(told, style="bold green")
    elif summary.books.are_balanced:
        yield Text("The books balance, but the run is not a success: see above.", style="bold red")
    else:
        yield Text("The books do not balance.", style="bold red")


def _books_table(books: Books) -> Table:
    table = Table(title="The services' book against the tasks' states", title_justify="left", box=SIMPLE)
    for column in ("operation", "in"):
        table.add_column(column)
    for column in ("done", "undone", "net", "expected"):
        table.add_column(column, justify="right")
    for line in books.lines:
        unit = line.operation.unit
        amounts = (as_number(amount, unit) for amount in (line.done, line.undone, line.net, line.expected))
        style = None if line.net == line.expected else "red"
        table.add_row(line.operation.name, unit_for_people(unit), *amounts, style=style)
    return table


def _facts(summary: Summary) -> Text:
    states, counts = summary.books.states, summary.counts
    fired = ", ".join(f"{kind} {count}" for kind, count in summary.faults_fired.items() if count) or "none"
    history = "clean" if summary.is_history_clean else "NOT clean"
    by = f" by {summary.processes} processes" if summary.processes > 1 else ""
    return Text(
        f"{summary.orders:,} orders: {states.get('processed', 0):,} processed, {states.get('compensated', 0):,}"
        f" compensated, {states.get('held', 0):,} held; {len(summary.set_aside):,} lines set aside\n"
        f"{counts.steps_done:,} steps in {summary.seconds:.1f} seconds{by}, {counts.retries:,} retries,"
        f" {counts.undos:,} undos, {summary.kills} of {summary.kills_planned} kills\n"
        f"faults fired: {fired}\n"
        f"order of each customer: {_order(summary.turns, summary.orders)}\n"
        f"exported history: {history}"
    )


def _order(turns: Turns, orders: int) -> str:
    kept = "kept" if turns.are_kept else f"NOT kept, {len(turns.discrepancies):,} orders were out of it"
    alone = orders - turns.operations
    return f"{kept}; {turns.operations:,} orders of {turns.customers:,} customers, {alone:,} of nobody known"


def _more(count: int, what: str) -> list[Text]:
    return [Text(f"... and {count - LISTED_MAX:,} more {what}")] if count > LISTED_MAX else []
