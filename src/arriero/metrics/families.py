"""The names of all metrics: what each one is, its labels and its help line. The how-to, the dashboard and the rules use them.

Names follow OpenMetrics: base units as suffix, ``_total`` for counters. No label holds an id: the values of a label are the
names that an App declares, or words of arriero; but for the values of tags that the configuration names.
"""

from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

Kind = Literal["gauge", "counter", "histogram", "info"]
Source = Literal["store", "process"]

COUNT_SUFFIXES: dict[Kind, tuple[str, ...]] = {
    "gauge": ("",),
    "counter": ("_total",),
    "histogram": ("_bucket", "_sum", "_count"),
    "info": ("_info",),
}


class Family(msgspec.Struct, frozen=True, kw_only=True):
    """One metric.

    Attributes:
        name: as it is declared, without the suffix of its samples.
        source: ``store``: the same in all processes; ``process``: of this one alone.
    """

    name: str
    kind: Kind
    source: Source
    help: str
    labels: tuple[str, ...] = ()

    @property
    def samples(self) -> tuple[str, ...]:
        """The names of its samples, as queries use them."""
        return tuple(self.name + suffix for suffix in COUNT_SUFFIXES[self.kind])


def _of_store(name: str, help: str, *labels: str, kind: Kind = "gauge") -> Family:
    return Family(name=f"arriero_{name}", kind=kind, source="store", help=help, labels=labels)


def _of_process(name: str, help: str, *labels: str, kind: Kind = "gauge") -> Family:
    return Family(name=f"arriero_{name}", kind=kind, source="process", help=help, labels=labels)


STORE_UP = _of_store("store_up", "1 if the state store answered this scrape, else 0.")
STORE_READ = _of_store("store_reading_seconds", "How long the last reading of the state store took.")
STORE_AGE = _of_store("store_reading_age_seconds", "How old the reading is that the metrics of the store come from.")
TASKS = _of_store(
    "tasks",
    "Tasks by situation: running in a process, due and free, not due before a later time, waiting for their turn in a convoy, or "
    "held. Each is counted up to 10,000.",
    "situation",
)
TASKS_DUE_AGE = _of_store("tasks_due_age_seconds", "For how long the oldest free task has been due; 0: none is.")
CONVOYS_STILL = _of_store("convoys_standing_still", "Convoys that are stopped, parked or wait in a gap.", "state")
ALERTS_OPEN = _of_store("alerts_open", "Open alerts: each needs an operator.")
STATUSES = _of_store("statuses_waiting", "Status messages in reply queues that nobody has acknowledged.")
STATUSES_AGE = _of_store("statuses_age_seconds", "Age of the oldest status message that nobody has acknowledged.")
SCHEDULES_DUE = _of_store("schedules_due", "Schedules that are due and that the leader has not looked at yet.")
SCHEDULES_LAG = _of_store(
    "schedules_lag_seconds", "For how long the schedule that is due longest has waited; 0: none is."
)
LEASES_HELD = _of_store("leases_held", "Leases that are held, with that of the Supervisors.")
LEADER_KNOWN = _of_store("leader_known", "1 if a Supervisor leads, else 0.")
LEADER_TERM = _of_store("leader_term", "Term of the leader; it grows with each new leader.")
PROCESSES = _of_store("processes_alive", "Processes whose lease has not lapsed, by role.", "role")
CALLS = _of_store("agent_calls", "Calls of an Agent that ended, by outcome.", "app", "agent", "outcome", kind="counter")
CALL_SECONDS = _of_store("agent_call_seconds", "How long calls of an Agent took.", "app", "agent", kind="histogram")
AGENT_ATTEMPTS = _of_store("agent_attempts_in_flight", "Running attempts of an Agent in all processes.", "app", "agent")
REQUESTS = _of_store(
    "agent_requests_waiting", "Requests to an Agent that are due and that no process has taken.", "app", "agent"
)
REQUESTS_AGE = _of_store(
    "agent_requests_age_seconds",
    "For how long the oldest due request to an Agent has waited; 0: none does.",
    "app",
    "agent",
)
BREAKERS = _of_store(
    "agent_breakers",
    "Circuit breakers of an Agent and of its targets that are open, half open, or kept closed to calls by an operator.",
    "app", "agent", "state",
)  # fmt: skip

PROCESS = _of_process("process", "The App and the version of arriero that run here.", "app", "version", kind="info")
RUNNING = _of_process("process_running", "1 if this process runs the App and is not declared lost, else 0.")
LEASE_TRUSTED = _of_process(
    "process_lease_trusted", "1 if this process may trust its lease: else its Agents begin no call."
)
LEADING = _of_process("process_leading", "1 if this process leads the Supervisors, else 0.")
LOOP_ALIVE = _of_process("process_loop_alive", "1 if a loop of this process is alive, else 0.", "loop")
COMMIT_COMMANDS = _of_process(
    "commit_commands",
    "Commands in each commit: of running tasks (engine), or new tasks (submissions).",
    "kind",
    kind="histogram",
)
COMMANDS_WAITING = _of_process("commands_waiting", "Commands that wait for their commit, or are in it.", "kind")
REFUSED = _of_process(
    "commands_refused",
    "Commands of this process that the store refused because their guard did not hold, by verdict.",
    "verdict",
    kind="counter",
)
ENDED = _of_process(
    "tasks_ended", "Tasks that a command of this process ended, by their state.", "state", kind="counter"
)
ENDED_BY_TAG = _of_process(
    "tasks_ended_by_tag",
    "Tasks that a command of this process ended, by each tag that the setting metrics_tags names, its value, and their state. Of a"
    " tag 100 values are counted by themselves, all others as other.",
    "tag",
    "value",
    "state",
    kind="counter",
)
ATTEMPTS = _of_process("attempts_in_flight", "Places of an Agent in use in this process.", "agent")
PLACES = _of_process("attempt_places", "Places of an Agent in this process, used and free.", "agent")
READING_FAILURES = _of_process(
    "store_reading_failures",
    "Readings of the state store for the metrics of this process that failed, or took too long for the scrape; the log says why.",
    "cause",
    kind="counter",
)
SUBMISSIONS_WAITING = _of_process("submissions_waiting", "Submissions of this process that have no answer yet.")
HTTP_REQUESTS = _of_process(
    "http_requests",
    "Requests that the HTTP API answered, by operation and status. No operation: none has the path, or it was refused before.",
    "operation",
    "status",
    kind="counter",
)
HTTP_PROBLEMS = _of_process(
    "http_problems",
    "Requests that the HTTP API refused or failed at, by the code of the problem.",
    "code",
    kind="counter",
)

FAMILIES = tuple(family for family in tuple(globals().values()) if isinstance(family, Family))


class Histogram(msgspec.Struct, frozen=True):
    """A histogram. ``counts``: how many lie within each bound and above the one before; one more: above all bounds."""

    bounds: Sequence[float]
    counts: Sequence[int]
    sum: float

    def list_buckets(self) -> list[tuple[str, float]]:
        """Upper bounds as text, with how many lie within each; the last bound is infinite."""
        total, found = 0, []
        for bound, count in zip((*map(_format_bound, self.bounds), "+Inf"), self.counts, strict=True):
            total += count
            found.append((bound, float(total)))
        return found


def _format_bound(bound: float) -> str:
    return repr(float(bound))


Labels = Sequence[str]
Values = Iterable[tuple[Labels, float | Histogram]]
