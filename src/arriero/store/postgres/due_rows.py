"""Due rows on PostgreSQL. They are locked once they are found; those that another process is taking are passed over."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ...commands import Claim
from ...core.apps import apps_run_by
from ...core.due import HEAD_START, WantedRequests
from ...core.lease import PROBATION_FROM
from ...core.routing import Ways
from ...errors import UnreadableRow
from ...model import ConvoyRow, Loaded, StepRow
from ..readable import of_task, without_body
from ..sql.agent_rows import CommandRows
from . import columns
from .context import StoreContext
from .convoy_rows import PostgresConvoyRows
from .row_decoding import convoy_in, step_of
from .session import Transaction

T = TypeVar("T")
# Rows that others may be taking at the same moment: all processes together claim about a hundred tasks at once.
PASSED_OVER_MAX = 100
OPENED_COUNT = columns.TASK.index("opened_count")


class PostgresDueRows(PostgresConvoyRows, CommandRows):
    """Due rows on PostgreSQL. What a batch has freed may be found, so it is written first."""

    def __init__(self, transaction: Transaction, context: StoreContext) -> None:
        super().__init__(transaction, context)
        self._due_convoys: list[ConvoyRow] = []

    def keep_due_convoys(self, rows: Sequence[tuple[Any, ...]]) -> None:
        """Convoys to be looked at that this transaction has locked."""
        self._due_convoys = self.keep_convoys(rows)

    def lock_due_convoys(self, limit: int) -> list[ConvoyRow]:
        """Rows locked at the start of the batch; none is answered twice."""
        due, self._due_convoys = self._due_convoys, []
        return [convoy for convoy in due if self.convoy(convoy.convoy_no) is convoy]

    def lock_claimable(self, command: Claim, probation: bool, limit: int) -> list[Loaded]:
        asked: dict[str, Any] = {
            "since": self._context.frontiers.tasks.since(command.workflows),
            "probation": probation,
        }
        asked |= {"workflows": list(command.workflows), "apps": list(apps_run_by(command.app))}
        name = "select_claimable_of_share" if command.shares else "select_claimable"
        return self._readable_of(name, asked, limit, self._claimable, self._read_steps)

    def _read_steps(self, rows: Sequence[tuple[Any, ...]]) -> None:
        begun = [row[0] for row in rows if row[OPENED_COUNT]]
        if begun:
            self.keep_steps(self.ask("select_steps", {"task_nos": begun}).fetchall())
            self.steps_read(begun)

    def _claimable(self, row: tuple[Any, ...]) -> Loaded:
        """A task with all that is recorded of it. Raises UnreadableRow."""
        self.keep_tasks((row[: columns.TASK_WIDTH],))
        task = self.task(row[0])
        assert task is not None
        text = row[columns.TASK_WIDTH]
        if text is None:
            raise without_body(task.task_no)
        try:
            convoy = convoy_in(row[columns.TASK_WIDTH + 1])
        except UnreadableRow as error:
            raise of_task(error, task.task_no) from error
        self.steps_read((task.task_no,))
        return Loaded(task, text, self.steps_of(task.task_no), convoy)

    def lock_takeable(self, wanted: WantedRequests, limit: int, *, keyless: bool = False) -> list[StepRow]:
        asked = self._ask_takeable(wanted) | {"keyless": keyless}
        return self._readable_of("select_takeable", asked, limit, self._takeable)

    def lock_takeable_of_keys(self, wanted: WantedRequests, keys: Sequence[str], of_each: int) -> list[StepRow]:
        asked = self._ask_takeable(wanted) | {"keys": list(keys), "of_each": of_each}
        return self._readable_of("select_takeable_of_keys", asked, of_each * len(keys), self._takeable)

    def lock_movable(self, wanted: WantedRequests, limit: int, ways: Ways) -> list[StepRow]:
        asked = self._ask_takeable(wanted) | {"waited_since": ways.waited_since}
        asked |= {"closed_apps": sorted(ways.closed.apps), "closed_targets": ways.closed.list_targets()}
        return self._readable_of("select_movable", asked, limit, self._takeable)

    def _ask_takeable(self, wanted: WantedRequests) -> dict[str, Any]:
        command, barred = wanted.command, wanted.barred
        asked: dict[str, Any] = {"since": self._context.frontiers.steps.since((wanted.agent,))}
        asked |= {"probation": wanted.probation, "agent": wanted.agent, "priority_from": wanted.priority_from}
        asked |= {"app": command.app or None, "names": list(command.names)}
        asked |= {"barred_apps": sorted(barred.apps), "barred_targets": barred.list_targets()}
        asked |= {"barred_retries": barred.retries, "probed": barred.list_probed()}
        asked |= {"barred_failed": barred.list_failed(), "head_start": wanted.head_start}
        return asked

    def _takeable(self, row: tuple[Any, ...]) -> StepRow:
        """A request. Of two of one task, both found at once, the second one's task moves on with the first. Raises
        UnreadableRow."""
        if self.task(row[columns.STEP_WIDTH]) is None:
            self.keep_tasks((row[columns.STEP_WIDTH :],))
        self.task(row[columns.STEP_WIDTH])
        step = step_of(row[: columns.STEP_WIDTH])
        self.keep_steps((row[: columns.STEP_WIDTH],))
        return step

    def _readable_of(
        self,
        name: str,
        asked: dict[str, Any],
        limit: int,
        read: Callable[[tuple[Any, ...]], T],
        read_before: Callable[[Sequence[tuple[Any, ...]]], None] = lambda _: None,
    ) -> list[T]:
        """Rows that are due and can be read; ``read_before`` is given all of them first. See ``Quarantine.read_due``."""

        def ask() -> list[tuple[Any, ...]]:
            rows = self._due(name, {**asked, "limit": limit, "compared": limit + PASSED_OVER_MAX})
            read_before(rows)
            return rows

        return self._quarantine.read_due(ask, read)

    def _due(self, name: str, asked: dict[str, Any]) -> list[tuple[Any, ...]]:
        """Rows that are due; the clock is read after they were locked, also for what follows in this batch."""
        self.flush()
        common: dict[str, Any] = {
            "now": self.read_clock(),
            "probation_from": PROBATION_FROM,
            "apart": self._quarantine.tasks(),
        }
        found = self.ask(name, {"head_start": HEAD_START, **asked, **common})
        clock = self._context.ask_clock(self.transaction)
        self.arrive()
        self.keep_clock(clock)
        return found.fetchall()
