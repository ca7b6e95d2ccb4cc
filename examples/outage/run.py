"""One of two providers slows down, is down, and comes back; then a big merchant floods a gateway. Nothing is lost.

    python examples/outage/run.py
    python examples/outage/run.py --store postgresql://USER@HOST/DATABASE

One process, about 20 s. Every stage prints what the services saw. If something is not as it must be, the exit code is 1.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import logging
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from arriero import Alert, ArrieroError, StoreError, TaskCompensated, TaskFailed  # noqa: E402
from arriero.audit.check import History  # noqa: E402
from arriero.client.agent_metrics import load_metrics  # noqa: E402
from arriero.client.agents import AgentView  # noqa: E402
from arriero.model import HistoryRow  # noqa: E402
from arriero.store import existing_store  # noqa: E402
from examples.orders.places import UnusablePlace, new_place  # noqa: E402  # found from the repository's root
from examples.outage.attempts import count_failed_attempts  # noqa: E402
from examples.outage.services import Condition, Order  # noqa: E402
from examples.outage.shop import (  # noqa: E402
    BREAKER,
    CONCURRENT,
    OF_MERCHANT,
    app,
    deliver,
    gateway_service,
    provider,
    region,
    region_eu,
    sell,
)

PATIENCE = 60  # seconds: nothing here should take ten
CUSTOMERS = 16
PAUSE = 0.05  # seconds between two orders of a customer
CALLS = 200  # of each stage, so that a share means something
CANARIES = 3
BIG, SMALL, SMALL_MERCHANTS = 60, 5, 10  # orders of the big merchant, and of each of the others


class NotAsPromised(Exception):
    """Something is not as it must be; the message says what."""


def expect(is_so: bool, what: str) -> None:
    """Raises: NotAsPromised - something is not as it must be."""
    if not is_so:
        raise NotAsPromised(what)


def says(text: str) -> None:
    print(f"\n--- {text}", flush=True)


async def wait_until(is_so: Callable[[], Awaitable[bool]], what: str) -> None:
    """Wait until something is so. Raises: NotAsPromised - it takes too long."""
    until = time.monotonic() + PATIENCE
    while not await is_so():
        expect(time.monotonic() < until, f"{what}, {PATIENCE} s later")
        await asyncio.sleep(0.02)


class Customers:
    """Customers who order one thing after the other. ``paid``: the orders that have ended well, by id."""

    def __init__(self) -> None:
        self.paid: dict[str, Order] = {}
        self.problems: list[str] = []
        self._numbers = itertools.count(1)
        self._is_open = True
        self._customers = [asyncio.create_task(self._buy()) for _ in range(CUSTOMERS)]

    async def _buy(self) -> None:
        while self._is_open:
            number = next(self._numbers)
            order = Order(f"order-{number:05}", f"merchant-{number % 7}", 100 + number)
            try:
                task = await app.submit(sell(order), task_id=order.id)
                await task.result(timeout=PATIENCE)
                self.paid[order.id] = order
            except (TaskFailed, TaskCompensated, ArrieroError, TimeoutError) as error:
                self.problems.append(f"{order.id}: {error!r}")
            await asyncio.sleep(PAUSE)

    async def leave(self) -> None:
        """Let each of them end the order that it has placed."""
        self._is_open = False
        await asyncio.gather(*self._customers)


# --- two providers of one step
class Stage:
    """A part of the outage: the calls that came in it, and how the Agents stand at its end."""

    def __init__(self, name: str) -> None:
        self.name = provider.phase = name
        self.began_at = time.monotonic()

    def count(self, name: str, *, failed: bool = False) -> int:
        """Count the calls of a region in this stage, or those that failed."""
        calls = [call for call in provider.calls if (call.phase, call.region) == (self.name, name)]
        return sum(call.has_failed for call in calls) if failed else len(calls)

    @property
    def share(self) -> float:
        """The part of the requests that the region in trouble got. Retries are left out."""
        first = [call.region for call in provider.calls if call.phase == self.name and call.is_first]
        return first.count(region.name) / max(len(first), 1)

    async def wait_for_calls(self) -> None:
        """Wait until ``CALLS`` calls have come in it."""

        async def have_come() -> bool:
            return provider.count_calls(self.name) >= CALLS

        await wait_until(have_come, f"stage {self.name!r} has had fewer than {CALLS} calls")

    async def show(self) -> AgentView:
        """Print its line of the table. Returns: how the Agent stands."""
        view = await look()
        columns = [f"{self.count(one):>5} {self.count(one, failed=True):>6}" for one in (region.name, region_eu.name)]
        print(
            f"  {self.name:<24}{'    '.join(columns)}{self.share:>8.0%}   {view.state:<9}{share_now(view):>6.0%}",
            flush=True,
        )
        return view


def show_header() -> None:
    print(
        f"\n  {'':<24}{region.name:>12}    {region_eu.name:>12}   of {region.name}: share of requests, breaker, share now"
    )
    print(f"  {'':<24}{'calls failed':>12}    {'calls failed':>12}", flush=True)


async def look() -> AgentView:
    """How ``arriero agent show payments`` shows the Agent."""
    return await app.agent(region.name).view()


def share_now(view: AgentView) -> float:
    """The share of new requests that the Agent gets as things stand."""
    return next((one.share for one in view.providers if one.agent == region.name), 0.0)


async def both_are_well(name: str) -> None:
    stage = Stage(name)
    await stage.wait_for_calls()
    view = await stage.show()
    expect(view.state == "closed", f"the breaker is {view.state} although all is well")
    expect(
        0.35 <= stage.share <= 0.65, f"{region.name} got {stage.share:.0%} of the requests, and not about half of them"
    )


async def one_degrades() -> None:
    stage = Stage("it begins to fail")
    region.condition = Condition.DEGRADED

    async def gets_less() -> bool:
        return share_now(await look()) < 0.45

    await wait_until(gets_less, f"{region.name} fails, and still gets its full share")
    await stage.show()
    stage = Stage("slow, some calls fail")
    await stage.wait_for_calls()
    view = await stage.show()
    expect(view.state == "closed", f"the breaker is {view.state}: {view.reason}")
    expect(
        0.05 <= stage.share <= 0.45, f"{region.name} got {stage.share:.0%} of the requests, and not less than its half"
    )


async def one_is_down() -> None:
    stage = Stage("refuses every call")
    region.condition = Condition.DOWN

    async def is_open() -> bool:
        # What had begun before the breaker opened is over once no call has come for a while.
        return (await look()).state != "closed" and region.measure_silence() > BREAKER.cool_off_seconds / 2

    await wait_until(is_open, f"the breaker of {region.name} has not opened")
    await stage.show()
    stage = Stage("down, breaker open")
    await stage.wait_for_calls()

    async def were_sent() -> bool:
        return stage.count(region.name) >= CANARIES

    await wait_until(were_sent, f"fewer than {CANARIES} canaries were sent")
    seconds = time.monotonic() - stage.began_at
    canaries_max = int(seconds / BREAKER.cool_off_seconds) + 2
    calls = stage.count(region.name)
    view = await stage.show()
    expect(view.state != "closed", f"the breaker has closed while {region.name} was down")
    expect(share_now(view) == 0.0, f"{region.name} is down and gets {share_now(view):.0%} of the requests")
    expect(calls <= canaries_max and stage.share < 0.1, f"{region.name} got {calls} calls in {seconds:.1f} s of outage")
    expect(stage.count(region_eu.name, failed=True) == 0, f"calls of {region_eu.name} failed")


async def it_comes_back() -> None:
    stage = Stage("answers again")
    region.condition = Condition.WELL

    async def gets_its_part() -> bool:
        # The Scheduler hears of the closing a little later than the store.
        lately = Counter(call.region for call in provider.calls[-20:])
        return lately[region.name] >= 6 and (await look()).state == "closed"

    await wait_until(gets_its_part, f"{region.name} is well, and its calls have not come back")
    await stage.show()
    expect(stage.count(region.name, failed=True) == 0, f"calls of {region.name} failed although it was well")


async def an_outage() -> dict[str, Order]:
    says(f"{CUSTOMERS} customers order. {region.name} and {region_eu.name} provide the same step.")
    show_header()
    customers = Customers()
    try:
        await both_are_well("both are well")
        await one_degrades()
        await one_is_down()
        await it_comes_back()
        await both_are_well("both are well again")
    finally:
        await customers.leave()
    expect(
        not customers.problems, f"{len(customers.problems)} orders had trouble, one of them {customers.problems[:1]}"
    )
    return customers.paid


# --- limits
async def a_flood() -> None:
    says(
        f"A merchant has {BIG} orders at once; {SMALL_MERCHANTS} others have {SMALL} each. The gateway takes {CONCURRENT} calls"
        f" at once, {OF_MERCHANT} of one merchant."
    )
    big = [Order(f"big-{number:03}", "big", 100) for number in range(BIG)]
    small = [
        Order(f"small-{merchant}-{number}", f"small-{merchant}", 100)
        for number in range(SMALL)
        for merchant in range(SMALL_MERCHANTS)
    ]
    flood = await asyncio.gather(*(app.submit(deliver(order), task_id=order.id) for order in big))
    others = await asyncio.gather(*(app.submit(deliver(order), task_id=order.id) for order in small))
    seen = Flood(len(gateway_service.begun))
    await asyncio.gather(*(task.result(timeout=PATIENCE) for task in (*flood, *others)))
    seen.show()
    seen.judge([*big, *small])


class Flood:
    """The calls that the gateway saw. ``waited_from``: from this call on, orders of all merchants waited."""

    def __init__(self, waited_from: int) -> None:
        self.begun, self.peaks = gateway_service.begun, gateway_service.peaks
        self.waited_from = waited_from

    def count_passed(self) -> int:
        """Count the calls of the big merchant that began while orders of others waited."""
        last = max(number for number, merchant in enumerate(self.begun) if merchant != "big")
        return self.begun[self.waited_from : last].count("big")

    def count_calls_until_all_had_one(self) -> int:
        """Count the calls until every merchant has had its first one."""
        return max(self.begun.index(merchant) for merchant in set(self.begun)) + 1 - self.waited_from

    def find_peak_of_others(self) -> int:
        """Find how many calls of one of the other merchants were made at once at most."""
        return max(peak for name, peak in self.peaks.items() if name not in ("", "big"))

    def show(self) -> None:
        peak, of_big, of_other = self.peaks[""], self.peaks["big"], self.find_peak_of_others()
        print(f"\n  at once at most: {peak} calls, {of_big} of the big merchant, {of_other} of another one")
        print(f"  every merchant had had a call after {max(self.count_calls_until_all_had_one(), 0)} calls")
        passed = self.count_passed()
        print(f"  while others waited, {passed} of the {BIG} calls of the big merchant began", flush=True)

    def judge(self, orders: Sequence[Order]) -> None:
        peak, turn = self.peaks[""], SMALL_MERCHANTS + 1
        expect(OF_MERCHANT < peak <= CONCURRENT, f"{peak} calls were made at once, not {CONCURRENT}")
        for name, of_one in self.peaks.items():
            expect(not name or of_one <= OF_MERCHANT, f"{of_one} calls of merchant {name} were made at once")
        waited = self.count_calls_until_all_had_one()
        expect(waited <= 2 * turn, f"a merchant waited for {waited} calls of others, which is more than two turns")
        passed = self.count_passed()  # without turns it would use its room, which is a third of all
        expect(passed <= 3 * SMALL, f"{passed} calls of the big merchant began while others waited for {SMALL} each")
        forwarded = [order_id for _, order_id in gateway_service.orders]
        expect(sorted(forwarded) == sorted(order.id for order in orders), "not every order was forwarded once")
        expect(len({key for key, _ in gateway_service.orders}) == len(forwarded), "two orders had one key")


# --- the books
async def judge_books(paid: dict[str, Order]) -> None:
    says("The books: what the services saw, what the tasks say, what the history says.")
    tasks = {state: await app.tasks(state=state).count() for state in ("processed", "held", "compensated")}
    wanted = len(paid) + BIG + SMALL * SMALL_MERCHANTS
    print(f"\n  tasks: {tasks['processed']:,} processed, {tasks['held']} held, {tasks['compensated']} undone")
    expect(
        tasks == {"processed": wanted, "held": 0, "compensated": 0}, f"the tasks are {tasks}, not {wanted} processed"
    )
    charges = [charge for _, charge in provider.charges]
    regions = Counter(charge.region for charge in charges)
    keys = {key for key, _ in provider.charges}
    print(f"  charges: {', '.join(f'{count:,} by {name}' for name, count in sorted(regions.items()))}")
    expect(
        len(keys) == len(charges) == len(paid), f"{len(charges)} charges under {len(keys)} keys of {len(paid)} orders"
    )
    pence = {charge.order_id: charge.pence for charge in charges}
    expect(pence == {order.id: order.pence for order in paid.values()}, "the charges are not those of the orders")
    asked = {(call.order_id, call.key) for call in provider.calls}
    expect(len(asked) == len(paid), f"{len(paid)} orders were called for under {len(asked)} keys")


async def judge_history(url: str) -> None:
    store = existing_store(url)
    await store.open()
    try:
        rows: list[HistoryRow] = [row async for row in store.history()]
        metrics = {one.agent: one.total.calls for one in (await load_metrics(store)).agents}
    finally:
        await store.close()
    calls = {**Counter(call.region for call in provider.calls), "gateway": len(gateway_service.begun)}
    print(f"  calls: {', '.join(f'{count:,} of {name}' for name, count in sorted(calls.items()))}")
    expect(metrics == calls, f"the services saw {calls}, and arriero counted {metrics}")
    attempts = count_failed_attempts(rows)
    print(
        f"  attempts: {attempts.failed} failed; {attempts.charged} charged before the breaker opened, {attempts.returned} of"
        f" these given back; {attempts.left} stay charged"
    )
    expect(attempts.left == 0, f"{attempts.left} attempts stay charged to the outage")
    history = History()
    for row in rows:
        history.add(row)
    violations = history.end(complete=True)
    print(f"  history: {len(rows):,} commits, {len(violations)} violations", flush=True)
    expect(not violations, f"the history violates {violations[:1]}")


async def main(url: str) -> None:
    @app.on_alert
    def page(alert: Alert) -> None:
        print(f"  [pager] {alert.state}: {alert.reason}", flush=True)

    async with app.running(store=url):
        paid = await an_outage()
        await a_flood()
        await judge_books(paid)
    await judge_history(url)
    says("As promised: an outage moved the calls and nothing else, and a flood waited for its own turns.")


def run(arguments: Sequence[str]) -> int:
    """Run it. Returns: the exit code."""
    parser = argparse.ArgumentParser(description="An outage of one of two providers, and a flood at a gateway.")
    parser.add_argument(
        "--store", help="a database on PostgreSQL, or a file that does not exist; a temporary file by default"
    )
    options = parser.parse_args(arguments)
    try:
        with tempfile.TemporaryDirectory(prefix="arriero-outage-") as folder:
            place = new_place(options.store, Path(folder))
            with place.made(keep=False):
                asyncio.run(main(place.url))
    except (UnusablePlace, StoreError) as error:
        print(error, file=sys.stderr)
        return 2
    except (NotAsPromised, ArrieroError, TimeoutError) as error:
        print(f"\nnot as it should be: {error or 'an order has not ended in time'}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    logging.basicConfig(level=logging.ERROR)  # the alerts are printed, and the warnings of this run say the same
    sys.exit(run(sys.argv[1:]))
