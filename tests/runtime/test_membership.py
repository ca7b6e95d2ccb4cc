"""What a process believes of its own lease, and that it frees what others left until that is done."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from core_rows import loaded, task_row
from runtime_world import QUICK, until

from arriero import StoreError
from arriero.core.lease import MARGIN_SHARE
from arriero.model import Instant, Loaded
from arriero.model.answers import Applied
from arriero.model.commands import AnyCommand, FreeTask
from arriero.model.processes import ProcessRow
from arriero.runtime.membership import Membership
from arriero.runtime.process_context import ProcessContext
from arriero.store.contract import Renewal

OURS, OTHERS = 1, 2


class Bench:
    """A store whose answers take as long as the test says, on the clock of the one who asks; another process is gone."""

    def __init__(self) -> None:
        self.at = 100.0
        self.takes: list[float] = []  # seconds of the next answers to a renewal
        self.clock = self
        self.other_left: list[Loaded] = []
        self.silent = 0  # so many questions for what it left are not answered
        self.freed: list[int] = []
        self.renewals = 0
        self._turns = asyncio.Semaphore(0)
        self._spawned: set[asyncio.Task[None]] = set()
        common: Any = {"store": self, "committer": self, "ports": self, "settings": QUICK}
        self.news = "{}"  # what the process would say of itself now
        self.order: list[str] = []
        self.context = ProcessContext(**common, actor="ours")
        self.membership = Membership(
            self.context, on_lost=lambda: None, spawn=self._spawn, about_now=lambda _: self.news
        )

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        self._spawned.add(asyncio.get_running_loop().create_task(coroutine))

    # the ports
    def monotonic(self) -> float:
        return self.at

    async def sleep(self, seconds: float) -> None:
        await self._turns.acquire()
        self.at += seconds

    def keep(self, renewals: Callable[[], Coroutine[Any, Any, None]]) -> "Bench":
        self._spawn(renewals())
        return self

    async def stop(self) -> None:
        for task in self._spawned:
            task.cancel()
        await asyncio.gather(*self._spawned, return_exceptions=True)

    # the store
    def announce(self, instance: str) -> None: ...

    def is_known_dead(self, instance: str) -> bool:
        return True

    async def register(self, instance: str, lease_seconds: float, about: str) -> int:
        return OURS

    async def describe(self, process_no: int, about: str) -> None:
        self.order.append("describe")
        self.at += QUICK.lease_seconds / 2

    async def renew(self, process_no: int, lease_seconds: float, room: str = "") -> Renewal:
        self.order.append("renew")
        self.renewals += 1
        self.at += self.takes.pop(0) if self.takes else 0.0
        others = (ProcessRow(OTHERS, "other", Instant(0), False, "{}"),) if self.other_left else ()
        return Renewal(Instant(1), True, Instant(0), others)

    async def retire(self, process_no: int, *, by: str, known_dead: bool) -> bool:
        return True

    async def load_held(self, process_no: int, limit: int) -> list[Loaded]:
        if self.silent:
            self.silent -= 1
            raise StoreError("no answer")
        return self.other_left

    async def ask(self, command: AnyCommand) -> Any:
        assert isinstance(command, FreeTask)
        self.freed.append(command.task_no)
        self.other_left = [one for one in self.other_left if one.task.task_no != command.task_no]
        return Applied(task_row())

    # what happens
    async def renewed(self) -> None:
        """The process renews its lease once more, and has heard the answer."""
        wanted = self.renewals + 1
        self._turns.release()
        await until(lambda: self.renewals == wanted)
        for _ in range(3):
            await asyncio.sleep(0)

    async def started(self) -> Membership:
        await self.membership.register()
        await self.membership.start()
        return self.membership


async def test_a_process_says_what_is_new_of_itself_after_its_renewal_and_only_where_the_store_is_quick() -> None:
    bench = Bench()
    await bench.started()
    bench.news, bench.takes = '{"slow":1}', [0.3 * QUICK.lease_seconds]
    await bench.renewed()
    assert bench.context.is_trusted()
    assert bench.order == ["renew", "renew"]  # it would have put off the next renewal
    await bench.renewed()
    assert bench.order == ["renew", "renew", "renew", "describe"]
    assert bench.context.is_trusted()
    await bench.renewed()
    assert bench.order[-1] == "renew"  # there is nothing new
    await bench.stop()


async def test_a_lease_is_trusted_from_before_its_request_left_however_late_the_answer_came() -> None:
    bench = Bench()
    trusted = QUICK.lease_seconds * (1 - MARGIN_SHARE)
    bench.takes = [trusted - 0.1, trusted, 0.0]
    await bench.started()
    assert bench.context.is_trusted()
    bench.at += 0.2
    assert not bench.context.is_trusted()
    await bench.renewed()
    assert not bench.context.is_trusted()
    await bench.renewed()
    assert bench.context.is_trusted()
    await bench.membership.stop(retire=False)


async def test_what_could_not_be_freed_at_once_is_freed_with_a_later_renewal() -> None:
    bench = Bench()
    bench.other_left = [loaded(locked_by=OTHERS)]
    bench.silent = 1
    await bench.started()
    await until(lambda: not bench.silent)
    assert bench.freed == []
    await bench.renewed()
    await until(lambda: bench.freed == [1])
    await bench.membership.stop(retire=False)
