"""All rows of PostgreSQL as the engine asks for them outside of batches of commands.

What is purged is locked as submitters lock it: a convoy's end, the convoy, then tasks.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from ...core.apps import apps_run_by
from ...model import NOT_SAID, AlertRow, ConvoyRow, Instant, LedgerRow, Loaded, StatusRow, StepRow, TailRow, TaskRow
from ...model.failures import TaskFailure, read_task_failure
from ...model.leases import LeaseRow
from ...model.processes import FIRST, ProcessAbout, ProcessRow, Versions, ask_versions, compute_first_number
from ...model.schedules import OpenRun
from .. import columns, task_filter
from ..contract import SUPERVISOR_LEASE, Busy, Due, Purge, Renewals
from ..engine.reading import due_at
from ..readable import legible
from ..rows import alert_of, convoy_of, tail_of
from ..sql.rows import ProcessRows
from ..sql.store_rows import StoreRows
from ..task_filter import TaskFilter, fold_text
from .columns import as_json, convoy_as_told, step_as_is, task_as_is, task_of
from .ledger_rows import PostgresLedgerRows
from .task_rows import PostgresWrittenRows

_read_about = msgspec.json.Decoder(ProcessAbout).decode


class PostgresProcessRows(PostgresWrittenRows, ProcessRows):
    """Rows of processes, leases and epochs on PostgreSQL. The clock is read again after each lock."""

    def lock_known_code(self) -> list[str]:
        self.ask("lock_registration").fetchone()
        return super().lock_known_code()

    def add_process(self, instance: str, lease_until: Instant, about: str) -> tuple[int, int]:
        asked = {"instance": instance, "lease_until": lease_until, "about": about}
        row = self.ask("insert_process", asked).fetchone()
        assert row is not None
        said = _read_about(about)
        if said.policies:
            rows = as_json(_workflows(said.policies))
            self.ask("put_workflows", {"rows": rows})
            if said.app != NOT_SAID:
                self.ask("put_app_workflows", {"app": said.app, "rows": rows})
        return row[0], row[1]

    def lock_process(self, process_no: int) -> ProcessRow | None:
        row = self.ask("lock_process", {"process_no": process_no}).fetchone()
        self._now = None
        return None if row is None else self.read_shared(ProcessRow, [row])[0]

    def select_renewals(self, process_no: int) -> Renewals:
        if self._context.has_server_clock:
            self.ask("mend_clock")
        clock = self._context.ask_clock(self.transaction)
        seen = self.ask("select_last_renewal")
        others = self.ask("select_other_processes", {"process_no": process_no})
        self.arrive()
        self.keep_clock(clock)
        last, until = seen.fetchone() or (None, None)
        named = self.read_shared(ProcessRow, others.fetchall())
        return Renewals(None if last is None else Instant(last), Instant(until or 0), tuple(named))

    def renew_process(self, process_no: int, lease_until: Instant, now: Instant, room: str) -> bool:
        asked: dict[str, Any] = {"process_no": process_no, "epoch": self._context.epoch, "lease_until": lease_until}
        asked |= {"renewed_at": now, "room": room}
        (is_renewed,) = self.ask("renew_process", asked).fetchone() or (False,)
        return bool(is_renewed)

    def read_epoch(self) -> int:
        (epoch,) = self.ask("select_meta", {"name": "epoch"}).fetchone() or (FIRST,)
        return int(epoch)

    def open_epoch(self) -> int:
        row = self.ask("lock_epoch").fetchone()
        assert row is not None
        epoch = int(row[0]) + 1
        self.ask("put_meta", {"name": "epoch", "value": str(epoch)})
        self.ask("close_epoch")
        self.ask("delete_secrets")
        self.ask("number_from", {"first": compute_first_number(epoch)})
        return epoch

    def rename_workflows(self, old: str, new: str) -> None:
        self.ask("copy_app_workflows", {"app": old, "new": new})
        self.ask("delete_app_workflows", {"app": old})

    # --- leases
    def add_lease(self, name: str) -> None:
        self.ask("add_lease", {"name": name})

    def lock_lease(self, name: str, *, to_grant: bool = False) -> LeaseRow | None:
        row = self.ask("lock_lease_to_grant" if to_grant else "select_lease", {"name": name}).fetchone()
        self._now = None
        return None if row is None else self.read_shared(LeaseRow, [row])[0]


def _workflows(policies: Mapping[str, str]) -> list[dict[str, Any]]:
    limits = {name: msgspec.json.decode(policy).get("complete_within") for name, policy in policies.items()}
    return [{"name": n, "policy": policies[n], "complete_within": limits[n]} for n in sorted(policies)]


class PostgresRows(PostgresLedgerRows, PostgresProcessRows, StoreRows):
    """All rows of one transaction on PostgreSQL."""

    def read_term(self, lease: str) -> int:
        """0 also while another transaction changes it: the caller has to ask again."""
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
        return self.add_inboxes([loaded[task_no] for task_no in task_nos if task_no in loaded])

    def select_number(self, task_id: str) -> int | None:
        row = self.ask("select_number", {"task_id": task_id}).fetchone()
        return None if row is None else row[0]

    def select_due(self, workflows: Sequence[str], agents: Sequence[str], app: str, versions: Versions) -> Due:
        """See ``StateStore.due``."""
        now, frontiers = self.read_clock(), self._context.frontiers
        froms = {"tasks_from": frontiers.tasks.begin_look(workflows), "steps_from": frontiers.steps.begin_look(agents)}
        asked = {"now": now, "workflows": list(workflows), "agents": list(agents), **froms}
        asked |= ask_versions(versions, workflows)
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
        asked = {"states": [state.stored for state in which.states], "ended_before": which.ended_before}
        rows = self.ask("purge_chosen", {**asked, "limit": limit, "after": after}).fetchall()
        return [(task_no, link, head) for task_no, link, head in rows]


def _by_task(steps: Iterable[StepRow]) -> dict[int, list[StepRow]]:
    of_task: dict[int, list[StepRow]] = {}
    for step in steps:
        of_task.setdefault(step.task_no, []).append(step)
    return of_task


# Bounds of the index of ledgers. By equality the planner could take the primary key for the order, and read all tasks.
OF_LEDGER = """from_ledger >= %(from_ledger)s
   AND (from_ledger, task_no) > (%(from_ledger)s, %(after)s)
   AND (from_ledger, task_no) < (%(from_ledger)s, coalesce(%(before)s::bigint, 9223372036854775807))"""


OF_PARENT = """parent_step > (SELECT task_no << 20 FROM {schema}.task WHERE task_id = %(parent)s)
   AND parent_step < (SELECT (task_no + 1) << 20 FROM {schema}.task WHERE task_id = %(parent)s)"""
OF_TAG = """tagged.name = %(tag_name)s AND tagged.value = %(tag_value)s AND tagged.tagged_no > %(after)s
   AND tagged.tagged_no < coalesce(%(before)s::bigint, 9223372036854775807)"""


def select_filtered(
    rows: PostgresRows, which: TaskFilter, after: int, before: int | None, newest_first: bool, limit: int
) -> list[TaskRow]:
    """See ``StateStore.list_tasks``. A text is compared here: only here it is folded as lists show it."""
    number, sql = _build_statement(rows, which)
    if number is None and which.ledger is not None:
        return []
    sql = task_filter.order_newest_first(sql) if newest_first else sql
    found: list[TaskRow] = []
    while len(found) < limit:
        found_rows = rows.transaction.plain(sql, _build_parameters(which, number, after, before, limit)).fetchall()
        page = [task_as_is(row) for row in found_rows]
        found += [task for task in page if _matches_failure(task, which.text, which.code)]
        if len(page) < limit:
            break
        after, before = (after, page[-1].task_no) if newest_first else (page[-1].task_no, before)
    return found[:limit]


def count_filtered(rows: PostgresRows, which: TaskFilter, after: int, before: int | None, limit: int) -> int:
    """See ``StateStore.count_listed``."""
    if which.text is not None or which.code is not None:
        return len(select_filtered(rows, which, after, before, False, limit))
    number, sql = _build_statement(rows, which)
    if number is None and which.ledger is not None:
        return 0
    asked = _build_parameters(which, number, after, before, limit)
    (count,) = rows.transaction.plain(task_filter.build_count(sql), asked).fetchone() or (0,)
    return int(count)


def _build_statement(rows: PostgresRows, which: TaskFilter) -> tuple[int | None, str]:
    """Build the statement for a filter. Returns it behind the number of the ledger, if the filter names one that exists."""
    filtered = rows.transaction.statement("select_filtered")
    if which.ledger is None and which.parent is not None:
        return None, task_filter.narrow_to_parent(filtered, OF_PARENT)
    if which.ledger is None:
        return None, task_filter.narrow_to_tag(filtered, OF_TAG) if which.tags else filtered
    ledger = rows.select_ledger(which.ledger)
    return None if ledger is None else ledger.ledger_no, task_filter.narrow_to_ledger(filtered, OF_LEDGER)


def _build_parameters(
    which: TaskFilter, ledger_no: int | None, after: int, before: int | None, limit: int
) -> dict[str, object]:
    asked = task_filter.list_parameters(which)
    text, code, _ = asked.pop("text"), asked.pop("code"), asked.pop("ledger")
    if ledger_no is not None:
        asked["from_ledger"] = ledger_no
    failed = None if text is None and not code else True
    asked |= {"apps": list(which.apps) or None, "workflows": list(which.workflows) or None}
    return {**asked, "after": after, "before": before, "limit": limit, "failed": failed}


def _matches_failure(task: TaskRow, text: str | None, code: str | None) -> bool:
    """Match a failure here and not in SQL: one that cannot be read must not fail the question."""
    failure = None if text is None and code is None else legible(task).failure
    told = TaskFailure("bug", "") if failure is None else read_task_failure(failure)
    return (text is None or fold_text(text) in fold_text(told.reason)) and code in (None, told.code)
