"""Shows a running demonstration: a live view on a terminal, plain lines anywhere else."""

from __future__ import annotations

import time
from collections import deque
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from .progress import Counts

STATES = ("pending", "processing", "compensating", "processed", "compensated", "held")
SECONDS_BETWEEN_LINES = 2.0
RATE_WINDOW_SECONDS = 3.0


class View(Protocol):
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...
    def show(self, counts: Counts, kills: int) -> None: ...
    def announce(self, text: str) -> None:
        """Show a line that stays."""


def open_view(console: Console, orders: int) -> View:
    """The view that fits the console."""
    return LiveView(console, orders) if console.is_terminal else PlainView(console, orders)


class Rate:
    """Steps a second over the last few seconds."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int]] = deque()

    def add(self, steps_done: int) -> float:
        now = time.monotonic()
        self._samples.append((now, steps_done))
        while len(self._samples) > 2 and now - self._samples[0][0] > RATE_WINDOW_SECONDS:
            self._samples.popleft()
        (began, before), (ended, after) = self._samples[0], self._samples[-1]
        return (after - before) / (ended - began) if ended > began else 0.0


class LiveView:
    def __init__(self, console: Console, orders: int) -> None:
        self._rate = Rate()
        self._bar = Progress(
            TextColumn("orders"), BarColumn(bar_width=None), MofNCompleteColumn(), TimeElapsedColumn(),
            TextColumn("left"), TimeRemainingColumn(), console=console, expand=True,
        )  # fmt: skip
        self._bar_id = self._bar.add_task("orders", total=orders)
        self._live = Live(console=console, refresh_per_second=8, transient=True)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._live.stop()

    def show(self, counts: Counts, kills: int) -> None:
        self._bar.update(self._bar_id, completed=counts.ended)
        self._live.update(Group(_tables(counts, self._rate.add(counts.steps_done), kills), self._bar))

    def announce(self, text: str) -> None:
        self._live.console.print(text, markup=False, highlight=False)


class PlainView:
    def __init__(self, console: Console, orders: int) -> None:
        self._console = console
        self._orders = orders
        self._rate = Rate()
        self._shown_at = float("-inf")
        self._kills = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        return None

    def show(self, counts: Counts, kills: int) -> None:
        rate = self._rate.add(counts.steps_done)
        if kills == self._kills and time.monotonic() - self._shown_at < SECONDS_BETWEEN_LINES:
            return
        self._shown_at, self._kills = time.monotonic(), kills
        states = ", ".join(f"{counts.tasks[state]} {state}" for state in STATES if counts.tasks.get(state))
        self._console.out(
            f"{counts.ended}/{self._orders} orders ended ({states or 'none yet'}); {rate:.0f} steps/s,"
            f" {counts.retries} retries, {counts.undos} undos, {kills} kills",
            highlight=False,
        )

    def announce(self, text: str) -> None:
        self._console.out(text, highlight=False)


def _tables(counts: Counts, rate: float, kills: int) -> Group:
    """Two tables, one below the other: side by side their headings would not fit a terminal of 80 columns."""
    states = {state: f"{counts.tasks.get(state, 0):,}" for state in STATES}
    course = {
        "steps/s": f"{rate:,.0f}",
        "retries": f"{counts.retries:,}",
        "undos": f"{counts.undos:,}",
        "kills": str(kills),
    }
    return Group(_table("The shop's orders", states), _table(None, course, style="cyan"))


def _table(title: str | None, figures: dict[str, str], style: str = "") -> Table:
    table = Table(title=title, title_justify="left", expand=True)
    for name in figures:
        table.add_column(name, justify="right", style=style, no_wrap=True)
    table.add_row(*figures.values())
    return table
