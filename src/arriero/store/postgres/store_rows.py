"""All rows of PostgreSQL as the engine asks for them outside of batches of commands.

What is purged is locked as submitters lock it: a convoy's end, the convoy, then tasks.
"""

from collections.abc import Iterable, Sequence

from ...core.apps import apps_run_by
from ...model import AlertRow, ConvoyRow, Instant, LedgerRow, Loaded, StatusRow, StepRow, TailRow, TaskRow
from ...schedules import OpenRun
from ..contract import SUPERVISOR_LEASE, Busy, Due, Purge
from ..engine.reading import due_at
from ..rows import alert_of, status_of
from ..sql.store_rows import StoreRows
from . import columns
from .ledger_rows import PostgresLedgerRows
from .process_rows import PostgresProcessRows
from .row_decoding import convoy_as_told, convoy_of, step_as_is, tail_of, task_as_is, task_of

_OF_TASKS = ("purge_history", "purge_alerts", "purge_body", "purge_steps", "purge_task")


class PostgresRows(PostgresLedgerRows, PostgresProcessRows, StoreRows):
    """All rows of one transaction on PostgreSQL."""

    def read_term(self, lease: str) -> int:
        """0 also while another transaction changes it: whoever asks has to ask again."""
        row = self.ask("select_term", {"name": lease}).fetchone()
        return 0 if row is None else row[0]

    # --- schedules
    def lock_cancellable_runs(self, app: str, name: str, limit: int) -> list[OpenRun]:
        found = super().lock_cancellable_runs(app, name, limit)
        asked = {"task_nos": sorted(run.task_no for run in found)}
        tasks = self.ask("lock_tasks", asked).fetchall() if found else []
        convoys = self.ask("lock_convoys", {**asked, "convoy_nos": []}).fetchall() if found else []
        self._now = None
        self.keep_tasks(tasks)
        self.keep_convoys(convoys)
        if len(tasks) < len(found):
            raise Busy("another transaction has a run open")
        return found

    # --- tasks
    def select_tasks(self, task_nos: Sequence[int]) -> list[Loaded]:
        if not task_nos:
            return []
        tasks = self.ask("select_loaded", {"task_nos": list(task_nos)})
        steps = self.ask("select_steps", {"task_nos": list(task_nos)})
        self.arrive()
        of_task = _by_task(map(step_as_is, steps.fetchall()))
        loaded = {
            row[0]: Loaded(
                task_as_is(row[: columns.TASK_WIDTH]),
                row[columns.TASK_WIDTH],
                tuple(of_task.get(row[0], ())),
                convoy_as_told(row[columns.TASK_WIDTH + 1]),
            )
            for row in tasks.fetchall()
        }
        return [loaded[task_no] for task_no in task_nos if task_no in loaded]

    def select_number(self, task_id: str) -> int | None:
        row = self.ask("select_number", {"task_id": task_id}).fetchone()
        return None if row is None else row[0]

    def select_first_waiting(self, convoy_no: int) -> int:
        row = self.ask("select_first_waiting", {"convoy_no": convoy_no}).fetchone()
        return 0 if row is None else row[0]

    def close_unreadable(self, task_nos: Sequence[int]) -> None:
        self.ask("close_unreadable", {"task_nos": list(task_nos), "at": self.read_clock()})
        self.arrive()

    def select_due(self, workflows: Sequence[str], agents: Sequence[str], app: str) -> Due:
        """See ``StateStore.due``."""
        now, frontiers = self.read_clock(), self._context.frontiers
        froms = {"tasks_from": frontiers.tasks.begin_look(workflows), "steps_from": frontiers.steps.begin_look(agents)}
        asked = {"now": now, "workflows": list(workflows), "agents": list(agents), **froms}
        asked |= {
            "apps": list(apps_run_by(app)),
            "apart": self._quarantine.tasks(),
            "apart_convoys": self._quarantine.convoys(),
        }
        row = self.ask("select_due", {**asked, "lease": SUPERVISOR_LEASE}).fetchone()
        assert row is not None
        tasks, steps, next_task, next_step, look_at, is_leaderless, dead_tasks, dead_steps = row
        frontiers.tasks.end_look(tasks, now, dead_tasks)
        frontiers.steps.end_look(steps, now, dead_steps)
        frontiers.dead_tasks = dead_tasks
        times = (next_task, next_step, look_at)
        return due_at(now, (tasks, look_at), (steps,), times, is_leaderless=bool(is_leaderless))

    def select_news(self, process_no: int) -> list[tuple[int, int]]:
        """See ``StateStore.load_news``."""
        frontiers = self._context.frontiers
        since = frontiers.news.begin_look((process_no,))
        asked = {"process_no": process_no, "since": since, "apart": self._quarantine.tasks()}
        found = self.ask("select_news", asked).fetchall()
        frontiers.news.end_look(found[0][2] if found else None, self._context.now(), frontiers.dead_tasks)
        if again := self._quarantine.to_be_tried():
            held = self.ask("select_news_again", {"process_no": process_no, "task_nos": again}).fetchall()
            self._quarantine.forget_untried(set(again).difference(row[0] for row in held))  # others hold them now
            found += held
        return [(row[0], row[1]) for row in found]

    # --- statuses and alerts
    def lock_old_statuses(self, before: Instant, limit: int) -> list[StatusRow]:
        self.ask("lock_epoch")  # one at a time: of two, neither would see the other's mark
        return super().lock_old_statuses(before, limit)

    def lock_gap_marks(self, queues: Sequence[str]) -> list[StatusRow]:
        return [status_of(row) for row in self.ask("select_gap_marks", {"queues": list(queues)}).fetchall()]

    def remove_statuses(self, statuses: Sequence[tuple[str, int]]) -> None:
        rows = [{"queue": queue, "no": number} for queue, number in statuses]
        self.ask("delete_statuses", {"rows": columns.as_json(rows)})
        self.arrive()  # a connection that had ended before is noticed here, where nothing is in doubt yet

    def hold_alerts(self, now: Instant, next_at: Instant, limit: int) -> list[AlertRow]:
        asked = {"now": now, "next_at": next_at, "limit": limit}
        return [alert_of(row) for row in self.ask("take_alerts", asked).fetchall()]

    # --- purging
    def select_tail(self, key: str) -> TailRow | None:
        row = self.ask("select_tails_by_key", {"keys": [key]}).fetchone()
        return None if row is None else tail_of(row)

    def purge_tail(self, key: str) -> TailRow | None:
        row = self.ask("purge_lock_tail", {"key": key}).fetchone()
        return None if row is None else tail_of(row)

    def purge_ledger(self, ledger_id: str) -> LedgerRow | None:
        ledger = self.select_ledger(ledger_id)
        return None if ledger is None else self.lock(ledger.ledger_no)

    def convoy(self, convoy_no: int) -> ConvoyRow:
        if convoy_no not in self._convoys:
            row = self.ask("purge_lock_convoy", {"convoy_no": convoy_no}).fetchone()
            assert row is not None  # its end is ours
            self._convoys[convoy_no] = convoy_of(row)
        return self._convoys[convoy_no]

    def purge_tasks(self, task_nos: Sequence[int]) -> list[TaskRow]:
        tasks = [task_of(row) for row in self.ask("purge_lock_tasks", {"task_nos": list(task_nos)}).fetchall()]
        missing = set(task_nos) - {task.task_no for task in tasks}
        if missing and self.ask("select_existing", {"task_nos": sorted(missing)}).fetchall():
            raise Busy("another transaction has a task of it open; ask again")
        return tasks

    def read_expected_unlocked(self, convoy_no: int) -> int:
        row = self.ask("select_counts_on", {"convoy_no": convoy_no}).fetchone()
        assert row is not None
        return int(row[0])

    def choose_purgeable(self, which: Purge, limit: int, after: int) -> list[tuple[int, int, str]]:
        """Tasks that may be purged, each by number, link and head; ours until the transaction ends."""
        asked = {"states": [str(state) for state in which.states], "ended_before": which.ended_before}
        rows = self.ask("purge_chosen", {**asked, "limit": limit, "after": after}).fetchall()
        return [(task_no, link, head) for task_no, link, head in rows]

    def remove_tasks(self, task_nos: Sequence[int]) -> None:
        for name in _OF_TASKS:
            self.ask(name, {"task_nos": list(task_nos)})

    def remove_convoy(self, convoy_no: int) -> None:
        for name in ("delete_convoy", "delete_convoy_tail"):
            self.ask(name, {"convoy_no": convoy_no})
        self.ask("purge_history", {"task_nos": [-convoy_no]})

    def erase(self, rows: Sequence[int], events: str) -> None:
        self.ask("erase_history", {"rows": list(rows), "events": events})


def _by_task(steps: Iterable[StepRow]) -> dict[int, list[StepRow]]:
    of_task: dict[int, list[StepRow]] = {}
    for step in steps:
        of_task.setdefault(step.task_no, []).append(step)
    return of_task
