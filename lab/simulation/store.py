"""The store as one simulated process reaches it: calls take time, may fail after their effect, and messages come twice."""

import asyncio
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

from arriero.errors import ArrieroError, StoreError
from arriero.model.answers import Applied, Refusal, Submitted
from arriero.model.commands import (
    Advance,
    CommandOfAttempt,
    ExtendAttempt,
    PublishProgress,
    Report,
    SaveCheckpoint,
    Submit,
)
from arriero.model.moves import Reported
from arriero.store.memory import MemoryStore

from .election import Election
from .faults import Faults
from .loop import PROCESS

_PASSED_ON = (
    "submit",
    "register",
    "renew",
    "describe",
    "retire",
    "load_held",
    "load_news",
    "acquire_lease",
    "renew_lease",
    "release_lease",
    "due",
    "load_overdue",
    "load",
    "load_tasks",
    "load_children",
    "find",
    "find_convoy",
    "look_at_unreadable",
    "close_recovered_breakers",
    "remove_old_rates",
    "repair_waiting_keys",
    "remove_obsolete_rows",
    "put_agent_counts",
    "fold_agent_counts",
    "load_ended",
    "load_statuses",
    "acknowledge",
    "begin_ledger",
    "write_ledger",
    "open_ledger",
    "find_ledger",
    "find_open_of_ledgers",
    "ledger_aside",
    "list_ledgers",
    "discard_ledger",
    "let_go",
    "look_at_forgotten",
    "drop_statuses",
    "known_processes",
    "change_schedules",
    "list_workflow_pauses",
    "change_workflow_pause",
    "let_waiting_begin",
    "read_secret",
    "list_running_attempts",
    "late_answers",
    "published",
    "load_versions",
)

_COMMITS = ("apply", "submit", "change_schedules")
AWAY_SECONDS_MAX = 1.5  # several polls of a process
SLOW_SECONDS = (0.3, 3.0)  # of a commit or its answer: shorter and longer than the deadlines of the world's steps


UNEXPECTED = (MemoryError, RuntimeError)
# Of one process, between two of them: a command that twice in a row cannot be written is held as a bug, and rightly so.
UNEXPECTED_SECONDS = 5.0


class Network:
    """What stands between processes and the store.

    Args:
        store_random: decides about the store's own faults; a source apart, so that the other faults strike as without them.
        later: runs a coroutine function as the world itself, after some seconds.
    """

    def __init__(
        self,
        store: MemoryStore,
        random: Random,
        store_random: Random,
        faults: Faults,
        later: Callable[[float, Callable[[], Any]], None],
        asking_random: Random,
    ) -> None:
        self.store = store
        self.random = random
        self.store_random = store_random
        self.faults = faults
        self.asking_random = asking_random  # as ``store_random``
        self._later = later
        self.election: Election | None = None  # None: nothing is done to leaders, and nobody judges them
        self.tries: Counter[str] = Counter()  # of steps that began anywhere, by Agent
        self.counted_late: list[str] = []  # answers that changed something, and that their Agent had called late

    async def delay(self) -> None:
        """A request or an answer is running."""
        await asyncio.sleep(self.random.expovariate(200))

    def remember_reports(self, batch: Any) -> None:
        """Reports may be sent again, soon or long after: the store must see through both."""
        for command in batch:
            if isinstance(command, Report):
                self._repeat(command.actor, command.process_no, command.report, late=command.late)
            elif isinstance(command, Advance):
                for item in command.delivered:
                    if isinstance(item, Reported):
                        self._repeat(command.actor, command.process_no, item)
            elif isinstance(command, ExtendAttempt | SaveCheckpoint | PublishProgress):
                self._repeat_of_attempt(command)

    def _repeat_of_attempt(self, command: CommandOfAttempt) -> None:
        if self.faults.strikes("late_report", self.asking_random):
            self._later(self.asking_random.uniform(0.5, 8), lambda: self.store.apply([command]))

    def judge_late(self, batch: Any, answers: Any) -> None:
        """What its Agent called late must have changed nothing."""
        for command, answer in zip(batch, answers, strict=True):
            if isinstance(command, Report) and command.late and isinstance(answer, Applied):
                self.counted_late.append(f"a late answer of step {command.report.step_no} was answered with {answer}")

    def _repeat(self, actor: str, process_no: int, report: Reported, *, late: bool = False) -> None:
        command = Report(actor=actor, process_no=process_no, report=report, late=late)
        if self.faults.strikes("duplicate_report", self.random):
            self._later(self.random.uniform(0, 0.5), lambda: self.store.apply([command]))
        if self.faults.strikes("late_report", self.random):
            self._later(self.random.uniform(0.5, 8), lambda: self.store.apply([command]))


class SimulatedStore:
    """One process's view of the store; the contract of ``store.state_store``.

    Args:
        unexpected: draws when a call raises another exception than StoreError; None: never.
    """

    def __init__(self, network: Network, *, unexpected: Random | None = None) -> None:
        self._network = network
        self._unexpected = unexpected
        self._spared_until = 0.0
        self.url = "memory://simulated"
        self.store_id = network.store.store_id
        self.instances: dict[str, int] = {}
        self._away_until = 0.0

    def now(self) -> Any:
        return self._network.store.now()

    async def open(self) -> None:
        return

    async def close(self) -> None:
        return

    def announce(self, instance: str) -> None:
        self.instances[instance] = PROCESS.get()

    def on_wake_up(self, wake: Callable[[], None]) -> None:
        """Processes of the simulation find each other's news by polling."""

    def is_known_dead(self, instance: str) -> bool:
        return False  # as on different hosts: only the lease says

    async def apply(self, batch: Any) -> Any:
        if self._network.faults.strikes("late_report", self._network.random, share=0.1):
            await asyncio.sleep(self._network.random.uniform(0.5, 3))
        answer = await self._call("apply", batch)
        self._network.remember_reports(batch)
        self._network.judge_late(batch, answer)
        return answer

    async def load_due_schedules(self, limit: int) -> Any:
        """Where there are no schedules nothing is drawn, so that such a world is as it was before there were any."""
        if not self._network.store.schedule_rows:
            return await self._network.store.load_due_schedules(limit)
        return await self._call("load_due_schedules", limit)

    async def find_unnoticed_children(self, since: Any, until: Any, limit: int) -> Any:
        """As ``load_due_schedules``, where there are no children."""
        if not any(task.parent_step is not None for task in self._network.store.tasks.values()):
            return []
        return await self._call("find_unnoticed_children", since, until, limit)

    def _is_away(self) -> bool:
        """Whether the store refuses this process just now: once it does, it continues for a while."""
        network, now = self._network, asyncio.get_running_loop().time()
        if network.faults.strikes("error_before_effect", network.store_random):
            self._away_until = now + network.store_random.uniform(0, AWAY_SECONDS_MAX)
            return True
        return network.faults.active and now < self._away_until

    async def _call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        network, process, left_at = self._network, PROCESS.get(), asyncio.get_running_loop().time()
        election = network.election if process else None  # the world itself has no lease
        await network.delay()
        if election is not None:
            await election.before(name, process, args)
        if self._is_away():
            raise StoreError(f"simulated: {name} was refused, nothing was written")
        breaks = self._breaks()
        if breaks and name != "apply":  # else after its effect: the caller again meets its guards
            raise breaks
        is_commit = name in _COMMITS
        if is_commit and network.faults.strikes("slow_commit", network.store_random):
            await asyncio.sleep(network.store_random.uniform(*SLOW_SECONDS))
        answer = await getattr(network.store, name)(*args, **kwargs)
        if election is not None:
            await election.after(name, process, args, answer, left_at)
        if network.faults.strikes("effect_then_error", network.random):
            raise StoreError(f"simulated: the answer to {name} was lost")
        if breaks:
            raise breaks
        if is_commit and network.faults.strikes("slow_answer", network.store_random):
            await asyncio.sleep(network.store_random.uniform(*SLOW_SECONDS))
        await network.delay()
        return answer

    def _breaks(self) -> Exception | None:
        """What this call raises, as where memory or threads are short; no loop of the process may end by it."""
        now = asyncio.get_running_loop().time()
        if self._unexpected is None or now < self._spared_until:
            return None
        if not self._network.faults.strikes("unexpected", self._unexpected):
            return None
        self._spared_until = now + UNEXPECTED_SECONDS
        return self._unexpected.choice(UNEXPECTED)("simulated")


def _passing_on(name: str) -> Callable[..., Any]:
    async def method(self: SimulatedStore, *args: Any, **kwargs: Any) -> Any:
        return await self._call(name, *args, **kwargs)

    return method


for _name in _PASSED_ON:
    setattr(SimulatedStore, _name, _passing_on(_name))


async def submit_directly(store: Any, command: Submit) -> Submitted | Refusal:
    """Commit the submission of a child, without the queue of an App."""
    (answer,) = await store.submit([command])
    if isinstance(answer, ArrieroError):
        raise answer
    found: Submitted | Refusal = answer
    return found
