"""Rows of Agents inside one transaction: breakers, limits, requests that are due, counts of calls, secrets."""

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from ...core.apps import apps_run_by
from ...core.breaker import REMEMBERED_SECONDS
from ...core.due import WantedRequests
from ...core.limits import list_waiting_keys
from ...core.routing import Ways
from ...inspection.facts import AgentLoad, Backlog, CountsRow
from ...model import ConvoyRow, Instant, Loaded, StepRow, TaskRow, later
from ...model.agents import AgentLimitsRow, BreakerRow, RateRow, WaitingKeysRow
from ...model.commands import Claim
from ..contract import HeldAttempt
from ..rows import Row
from .rows import SqlRows, StatementAnswer
from .signal_rows import SignalTable

_BACKLOG_COLUMNS = tuple(name for name in Backlog.__struct_fields__ if name != "now")


class BreakerTable(SqlRows):
    """Breakers of Agents: the ``BreakerRows`` of ``core.changes``, and what the engine does with them."""

    _breakers: dict[str, list[BreakerRow]]  # by Agent, as this transaction has read and changed them

    def read_recent_clock(self) -> Instant:
        """The store's clock, as far as it is known without asking."""
        raise NotImplementedError

    def ask_breakers_of(self, agents: Sequence[str]) -> StatementAnswer:
        """Ask for the breakers of some Agents; the answer is for ``keep_breakers``."""
        since = later(self.read_recent_clock(), -REMEMBERED_SECONDS)
        return self.ask_of_agents("select_breakers", {"agents": list(agents), "since": since})

    def keep_breakers(self, agents: Sequence[str], rows: Sequence[Row]) -> None:
        """Keep the breakers of some Agents as they were read."""
        found = self.read_shared(BreakerRow, rows)
        for agent in agents:
            self._breakers[agent] = [row for row in found if row.agent == agent]

    def breakers(self, agent: str) -> list[BreakerRow]:
        if agent not in self._breakers:
            self.keep_breakers((agent,), self.ask_breakers_of((agent,)).fetchall())
        return self._breakers[agent]

    def lock_breaker(self, app: str, agent: str, target: str) -> BreakerRow | None:
        found = self.ask_of_agents("lock_breaker", {"app": app, "agent": agent, "target": target}).fetchall()
        return next(iter(self.read_shared(BreakerRow, found)), None)

    def put_breaker(self, breaker: BreakerRow) -> None:
        self._breakers.pop(breaker.agent, None)
        self.ask_of_agents("put_breaker", _parameters_of(breaker))

    def add_breaker(self, breaker: BreakerRow) -> None:
        self._breakers.pop(breaker.agent, None)
        self.ask_of_agents("add_breaker", _parameters_of(breaker))

    def read_floor(self, name: str) -> int:
        """A setting of the store that only grows; 0: it was never raised. See ``core.purging``."""
        row = self.ask("select_meta", {"name": name}).fetchone()
        return 0 if row is None else int(row[0])

    def close_breaker_alert(self, breaker: BreakerRow, at: Instant) -> None:
        self.ask("close_breaker_alert", {"step": breaker.label, "code": breaker.app, "at": at})

    def select_half_open_breakers(self) -> list[BreakerRow]:
        """The breakers that let only some requests through."""
        return self.read_shared(BreakerRow, self.ask_of_agents("select_half_open_breakers", {}).fetchall())

    def select_all_breakers(self) -> list[BreakerRow]:
        """All breakers that were ever opened or paused, by Agent, App and target."""
        return self.read_shared(BreakerRow, self.ask_of_agents("list_breakers", {}).fetchall())


def _parameters_of(breaker: BreakerRow) -> dict[str, Any]:
    return msgspec.structs.asdict(breaker) | {"state": str(breaker.state)}


def put_in_columns(rows: Sequence[WaitingKeysRow]) -> dict[str, list[Any]]:
    """Put rows in lists, one for each column, as statements take them."""
    columns = zip(*map(msgspec.structs.astuple, rows), strict=True)
    return dict(zip(("apps", "agents", "keys", "look_ats"), map(list, columns), strict=True))


class LimitTable(SqlRows):
    """Limits, and what is in use of them. Steps are asked as this transaction has changed them."""

    _limits: dict[str, list[AgentLimitsRow]]  # by Agent, as this transaction has read them

    def ask_limits(self, agents: Sequence[str]) -> StatementAnswer:
        """Ask for the limits of some Agents; the answer is for ``keep_limits``."""
        return self.ask_of_agents("select_limits", {"agents": list(agents)})

    def keep_limits(self, agents: Sequence[str], rows: Sequence[Row]) -> None:
        """Keep the limits of some Agents as they were read."""
        found = self.read_shared(AgentLimitsRow, rows)
        for agent in agents:
            self._limits[agent] = [row for row in found if row.agent == agent]

    def limits(self, agent: str) -> list[AgentLimitsRow]:
        if agent not in self._limits:
            self.keep_limits((agent,), self.ask_limits((agent,)).fetchall())
        return self._limits[agent]

    def lock_limits(self, app: str, agents: Sequence[str]) -> list[AgentLimitsRow]:
        """Lock the limits of some Agents of an App, by Agent."""
        found = self.ask_of_agents("lock_limits", {"app": app, "agents": list(agents)})
        return self.read_shared(AgentLimitsRow, found.fetchall())

    def put_limits(self, row: AgentLimitsRow) -> None:
        """Keep the limits of an Agent, new or changed."""
        self._limits.pop(row.agent, None)
        self.ask_of_agents("put_limits", msgspec.structs.asdict(row))

    def flush(self) -> None:
        """Write what was kept back."""
        raise NotImplementedError

    def _ask_steps(self, name: str, **parameters: Any) -> list[Row]:
        self.flush()  # what this transaction has changed counts
        return self.ask(name, parameters).fetchall()

    def count_running_keys(self, agent: str, apps: Sequence[str], since: Instant) -> list[tuple[str, int]]:
        """Count the attempts of an Agent that are running, by their keys; without those that have none.

        ``since``: attempts whose time was over by then do not count.
        """
        return [
            (keys, count)
            for keys, count in self._ask_steps("count_running_keys", agent=agent, apps=list(apps), since=since)
        ]

    def count_running_keyless(self, agent: str, apps: Sequence[str], since: Instant) -> int:
        """Count the attempts of an Agent that are running and have no keys, as in ``count_running_keys``."""
        ((count,),) = self._ask_steps("count_running_keyless", agent=agent, apps=list(apps), since=since)
        return int(count)

    def has_keyless(self, agent: str, apps: Sequence[str]) -> bool:
        """Returns True if steps of an Agent wait or run that have no keys."""
        ((found,),) = self._ask_steps("has_keyless", agent=agent, apps=list(apps))
        return bool(found)

    def lock_waiting_keys(
        self, agent: str, apps: Sequence[str], now: Instant, after: WaitingKeysRow | None, limit: int
    ) -> list[WaitingKeysRow]:
        """Lock keys that are to be looked at, in the order of ``look_at`` and the keys, behind ``after``.

        Those that another transaction is writing are left out.
        """
        last = (Instant(-1), "") if after is None else (after.look_at, after.keys)
        asked = {"agent": agent, "apps": list(apps), "now": now, "limit": limit}
        found = self._ask_steps("lock_waiting_keys", **asked, after_at=last[0], after_keys=last[1])
        return [WaitingKeysRow(*row) for row in found]

    def select_waiting_keys(self, agent: str, apps: Sequence[str], after: str, limit: int) -> list[str]:
        """The keys under which requests of an Agent may wait, in their order behind ``after``."""
        asked = {"agent": agent, "apps": list(apps), "after": after, "limit": limit}
        return [keys for (keys,) in self._ask_steps("select_waiting_keys", **asked)]

    def select_next_key_look(self, agent: str, apps: Sequence[str], now: Instant) -> Instant | None:
        """Returns the next instant at which keys of an Agent are to be looked at; None if there is none after ``now``."""
        ((look_at,),) = self._ask_steps("select_next_key_look", agent=agent, apps=list(apps), now=now)
        return None if look_at is None else Instant(look_at)

    def select_first_due(self, agent: str, apps: Sequence[str], keys: Sequence[str]) -> dict[tuple[str, str], Instant]:
        """Returns the instant at which the first request under each of some keys is due, by App and keys."""
        found = self._ask_steps("select_first_due", agent=agent, apps=list(apps), keys=list(keys))
        return {(app, of): Instant(at) for app, of, at in found if at is not None}

    def note_waiting_keys(self, steps: Iterable[StepRow]) -> None:
        """Keep the keys under which these steps wait, with the first instant at which one of them is due."""
        if rows := list_waiting_keys(steps):
            self.add_waiting_keys(rows)

    def add_waiting_keys(self, rows: Sequence[WaitingKeysRow]) -> None:
        """Keep these keys, given in their order. Those that are to be looked at earlier stay so."""
        self._send_waiting_keys("note_waiting_keys", rows)

    def select_missing_keys(self, limit: int) -> list[WaitingKeysRow]:
        """Keys of any Agent under which requests wait and that have no row, or one that nobody can read."""
        return [WaitingKeysRow(*row) for row in self.ask("select_missing_keys", {"limit": limit}).fetchall()]

    def _send_waiting_keys(self, name: str, rows: Sequence[WaitingKeysRow]) -> None:
        self.ask_of_agents(name, put_in_columns(rows))

    def move_waiting_keys(self, rows: Sequence[WaitingKeysRow]) -> None:
        """Keep when these keys are looked at next. They are locked."""
        self._send_waiting_keys("move_waiting_keys", rows)

    def remove_waiting_keys(self, rows: Sequence[WaitingKeysRow]) -> None:
        """Forget these keys. They are locked."""
        if rows:
            self._send_waiting_keys("remove_waiting_keys", rows)

    def wake_waiting_keys(self, app: str, agent: str, now: Instant) -> None:
        """Have all keys of an Agent looked at from now on: its limits are others."""
        self.ask_of_agents("wake_waiting_keys", {"app": app, "agent": agent, "now": now})

    def lock_old_waiting_keys(self, before: Instant, limit: int) -> list[WaitingKeysRow]:
        """Lock keys that were to be looked at before an instant, those that waited longest first."""
        found = self.ask("lock_old_waiting_keys", {"before": before, "limit": limit}).fetchall()
        return [WaitingKeysRow(*row) for row in found]

    def select_rates(self, app: str, agent: str, names: Sequence[str], keys: Sequence[str]) -> list[RateRow]:
        """Calls of the Agent's rate limits of these names, of some keys."""
        asked = {"app": app, "agent": agent, "names": list(names), "keys": list(keys)}
        found = self.ask_of_agents("select_rates", asked)
        return self.read_shared(RateRow, found.fetchall())

    def put_rate(self, rate: RateRow) -> None:
        self.ask_of_agents("put_rate", msgspec.structs.asdict(rate))

    def select_all_limits(self) -> list[AgentLimitsRow]:
        """All limits that hold, by Agent and App."""
        return self.read_shared(AgentLimitsRow, self.ask("list_limits").fetchall())

    def select_known_rates(self, app: str, agent: str, now: Instant) -> list[RateRow]:
        """Calls of the Agent's rate limits that still count, by limit and key."""
        found = self.ask("list_rates", {"app": app, "agent": agent, "now": now})
        return self.read_shared(RateRow, found.fetchall())

    def delete_old_rates(self, before: Instant) -> None:
        """Remove calls of rate limits that no longer count."""
        self.ask("remove_old_rates", {"before": before})


class CommandRows(SignalTable, BreakerTable, LimitTable):
    """Rows that commands need. Its methods may raise ReadLate or Busy where other processes change rows meanwhile.

    Of due rows, what cannot be read is set apart, and asked past.
    """

    @abstractmethod
    def process_was_retired(self, process_no: int) -> bool:
        """False of a process that is unknown."""

    @abstractmethod
    def lock_due_convoys(self, limit: int) -> Sequence[ConvoyRow]:
        """Convoys to be looked at, longest due first, which no command of this batch has changed."""

    @abstractmethod
    def lock_claimable(self, command: Claim, probation: bool, limit: int) -> Sequence[Loaded]:
        """Free, due tasks that the process may claim, in their order. ``probation``: also tasks on probation."""

    @abstractmethod
    def load_locked(self, task: TaskRow) -> Loaded:
        """A task that this transaction has locked, with all that is recorded of it but its signals. Raises UnreadableRow."""

    def lock_takeable(self, wanted: WantedRequests, limit: int, *, keyless: bool = False) -> Sequence[StepRow]:
        """Due requests in the order of core.due. ``keyless``: only those that carry no keys of limits."""
        return self.lock_requests("select_takeable", _ask_takeable(wanted) | {"keyless": keyless}, limit)

    def lock_takeable_of_keys(self, wanted: WantedRequests, keys: Sequence[str], of_each: int) -> Sequence[StepRow]:
        """Lock the first ``of_each`` requests of each key, in the order of the keys."""
        asked = _ask_takeable(wanted) | {"keys": list(keys), "of_each": of_each}
        return self.lock_requests("select_takeable_of_keys", asked, of_each * len(keys))

    def lock_movable(self, wanted: WantedRequests, limit: int, ways: Ways) -> Sequence[StepRow]:
        """Requests that another Agent may take over, whose breakers ``barred`` is of; see ``core.routing.may_move``."""
        asked = _ask_takeable(wanted) | {"waited_since": ways.waited_since}
        asked |= {"closed_apps": sorted(ways.closed.apps), "closed_targets": ways.closed.list_targets()}
        return self.lock_requests("select_movable", asked, limit)

    def lock_requests(self, name: str, asked: dict[str, Any], limit: int) -> Sequence[StepRow]:
        """Lock the requests that a statement finds, and read their tasks."""
        raise NotImplementedError


def _ask_takeable(wanted: WantedRequests) -> dict[str, Any]:
    """Parameters of statements that find due requests. Each database takes those that its statement names."""
    command, barred = wanted.command, wanted.barred
    asked: dict[str, Any] = {"agent": wanted.agent, "names": list(command.names), "probation": wanted.probation}
    asked |= {"priority_from": wanted.priority_from, "head_start": wanted.head_start, "app": command.app or None}
    asked |= {"apps": [app for app in apps_run_by(command.app) if app not in barred.apps]}
    asked |= {"barred_apps": sorted(barred.apps), "barred_targets": barred.list_targets()}
    asked |= {"barred_retries": barred.retries, "probed": barred.list_probed(), "barred_failed": barred.list_failed()}
    return asked


class AgentMetricsRows(SqlRows):
    """Rows of counts, and the load of Agents."""

    def put_counts(self, row: CountsRow) -> None:
        """Keep a row, unless its process is retired or unknown, or the row that is kept has more calls."""
        self.ask("put_agent_counts", msgspec.structs.asdict(row))
        self.arrive()

    def select_apps_to_fold(self, before: int) -> list[str]:
        """Apps with rows of minutes before that one."""
        return [app for (app,) in self.ask("select_apps_to_fold", {"before": before}).fetchall()]

    def lock_total(self, app: str) -> CountsRow:
        """The sum of an App, ours until the transaction ends; it is made if there is none."""
        self.ask("add_agent_total", {"app": app})
        (total,) = self.read_shared(CountsRow, self.ask("lock_agent_total", {"app": app}).fetchall())
        return total

    def select_counts_before(self, app: str, before: int, limit: int) -> list[CountsRow]:
        """Rows of an App with minutes before that one, in the order of their minutes; never its sum."""
        asked = {"app": app, "before": before, "limit": limit}
        return self.read_shared(CountsRow, self.ask("select_agent_counts_before", asked).fetchall())

    def put_total(self, total: CountsRow) -> None:
        """Keep a sum that this transaction has locked."""
        self.ask("put_agent_total", {"app": total.app, "calls": total.calls, "counts": total.counts})

    def remove_counts(self, rows: Sequence[CountsRow]) -> None:
        for row in rows:
            asked: dict[str, Any] = {"app": row.app, "process_no": row.process_no, "minute": row.minute}
            self.ask("remove_agent_counts", asked)
        self.arrive()

    def select_all_counts(self) -> list[CountsRow]:
        return self.read_shared(CountsRow, self.ask("select_agent_counts", {}).fetchall())

    def measure_loads(self, now: Instant) -> list[AgentLoad]:
        """Due requests and running attempts, by Agent and App."""
        due, running = self.ask("measure_requests", {"now": now}), self.ask("measure_running", {})
        self.arrive()
        return build_loads(due.fetchall(), running.fetchall())

    def select_backlog(self, now: Instant, limit: int) -> Backlog:
        """Measure the backlog. ``limit``: highest count of each kind."""
        asked = {"now": now, "limit": limit, "priorities": list(range(10))}
        row = self.ask("measure_backlog", asked).fetchone()
        self.arrive()
        assert row is not None
        return Backlog(now=now, **dict(zip(_BACKLOG_COLUMNS, row, strict=True)))


def build_loads(due: Sequence[Sequence[Any]], running: Sequence[Sequence[Any]]) -> list[AgentLoad]:
    """Build the load of each Agent, by Agent and App.

    Args:
        due: App, Agent, number of due requests, since when the oldest is due, number of those that are due later.
        running: App, Agent, number of running attempts.
    """
    counts: dict[tuple[str, str], int] = {(app, agent): count for app, agent, count in running}
    asked: dict[tuple[str, str], Sequence[Any]] = {(app, agent): numbers for app, agent, *numbers in due}
    found: list[AgentLoad] = []
    for app, agent in sorted({*counts, *asked}, key=lambda key: (key[1], key[0])):
        number, oldest_at, later = asked.get((app, agent), (0, None, 0))
        under_way = counts.get((app, agent), 0)
        found.append(AgentLoad(app=app, agent=agent, due=number, oldest_at=oldest_at, later=later, running=under_way))
    return found


class RemoteAgentRows(SqlRows):
    """Secrets, and running attempts."""

    def select_secret(self, name: str) -> str | None:
        """A secret in hexadecimal; None: there is none yet."""
        row = self.ask("select_secret", {"name": name}).fetchone()
        return None if row is None else str(row[0])

    def add_secret(self, name: str, value: str) -> None:
        """Keep a secret, unless there is one under its name."""
        self.ask("add_secret", {"name": name, "value": value})
        self.arrive()

    def select_running_attempts(self, step_nos: Sequence[int]) -> list[HeldAttempt]:
        found = self.ask("select_running_attempts", {"step_nos": list(step_nos)}).fetchall()
        return [HeldAttempt(*row) for row in found]
