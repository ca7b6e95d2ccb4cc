"""Types that a release has changed: what the release before recorded is read in every place, or holds its task."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NotRequired

import attrs
import msgspec
import pydantic
import pytest
from runtime_world import QUICK, Machine, until, within
from typing_extensions import TypedDict

import arriero
from arriero import (
    Agent,
    App,
    Attempt,
    InvalidInput,
    Permanent,
    Request,
    Retry,
    Signal,
    Supervision,
    TaskCompensated,
    TaskExists,
    TaskFailed,
    Undo,
    workflow,
)

WITH_URL = msgspec.structs.replace(QUICK, public_url="https://shop")


# --- the types of two releases: what a type had, and what it has
@dataclass
class Seen:
    """Describes a type and what is expected of it. ``make``: a value of 5 euros; ``tell``: what a value of the new type says."""

    of: Any
    make: Callable[[], Any]


def make_plain(**more: Any) -> tuple[Seen, Seen]:
    @dataclass
    class Order:
        euros: int

    old = Order

    @dataclass
    class Order:  # type: ignore[no-redef]  # the next release
        euros: int
        note: str = "none"

    return Seen(old, lambda: old(5)), Seen(Order, lambda: Order(5))


def make_struct() -> tuple[Seen, Seen]:
    old = msgspec.defstruct("Order", [("euros", int)])
    new = msgspec.defstruct("Order", [("euros", int), ("note", str, "none")])
    return Seen(old, lambda: old(5)), Seen(new, lambda: new(5))


def make_model() -> tuple[Seen, Seen]:
    old = pydantic.create_model("Order", euros=(int, ...))
    new = pydantic.create_model("Order", euros=(int, ...), note=(str, "none"))
    return Seen(old, lambda: old(euros=5)), Seen(new, lambda: new(euros=5))


def make_attrs() -> tuple[Seen, Seen]:
    old = attrs.make_class("Order", {"euros": attrs.field(type=int)})
    new = attrs.make_class("Order", {"euros": attrs.field(type=int), "note": attrs.field(type=str, default="none")})
    return Seen(old, lambda: old(5)), Seen(new, lambda: new(5))


def make_typed_dict() -> tuple[Seen, Seen]:
    class Order(TypedDict):
        euros: int

    class NewOrder(TypedDict):
        euros: int
        note: NotRequired[str]

    return Seen(Order, lambda: Order(euros=5)), Seen(NewOrder, lambda: NewOrder(euros=5))


def make_upcast() -> tuple[Seen, Seen]:
    @dataclass
    class Order:
        euros: int

    old = Order

    @dataclass
    class Order:  # type: ignore[no-redef]
        cents: int

    @arriero.upcast(Order, from_version=1)
    def count_cents(order: dict[str, Any]) -> dict[str, Any]:
        return {"cents": order["euros"] * 100}

    return Seen(old, lambda: old(5)), Seen(Order, lambda: Order(500))  # type: ignore[call-arg]


def make_upcast_of_model() -> tuple[Seen, Seen]:
    old = pydantic.create_model("Order", euros=(int, ...))
    new = pydantic.create_model(
        "Order", __module__=__name__, __config__=pydantic.ConfigDict(extra="forbid"), cents=(int, ...)
    )

    @arriero.upcast(new, from_version=1)
    def count_cents(order: dict[str, Any]) -> dict[str, Any]:
        return {"cents": order["euros"] * 100}

    return Seen(old, lambda: old(euros=5)), Seen(new, lambda: new(cents=500))


WAYS = {
    "a dataclass": make_plain,
    "a msgspec.Struct": make_struct,
    "a pydantic model": make_model,
    "an attrs class": make_attrs,
    "a TypedDict": make_typed_dict,
    "an upcast of a dataclass": make_upcast,
    "an upcast of a pydantic model": make_upcast_of_model,
}


class Release:
    """The code of one release. ``log``: what it has read, by the place."""

    def __init__(self, seen: Seen) -> None:
        self.log: dict[str, Any] = {}
        self.tokens: list[str] = []
        order_type, make, log = seen.of, seen.make, self.log
        self.changed = changed = Signal("changed", order_type)
        self.asked = asked = Request("asked", order_type, order_type)
        self.go = go = Signal("go", bool)
        shop, late = Agent("shop", breaker=None), Agent("late", breaker=None)

        @shop.step
        async def charge(attempt: Attempt, order: order_type) -> order_type:  # type: ignore[valid-type]
            await attempt.checkpoint({"euros": 5})
            return order

        @charge.compensation
        async def refund(undo: Undo[Any], order: order_type) -> None:  # type: ignore[valid-type]
            log["compensation argument"], log["undo result"] = order, undo.result

        @shop.step
        async def call_bank(done: arriero.Callback[order_type]) -> None:  # type: ignore[valid-type]
            self.tokens.append(done.token)

        @late.step(retry=Retry(tries=3), supervision=Supervision(attempts=3))
        async def pack(order: order_type) -> order_type:  # type: ignore[valid-type]
            log["step argument"] = order
            return order

        @workflow
        async def ship(order: order_type) -> order_type:  # type: ignore[valid-type]
            return order

        @workflow
        async def fulfil(order: order_type, fails: bool) -> order_type:  # type: ignore[valid-type]
            log["workflow argument"] = order
            log["convoy state"] = arriero.convoy_state(order_type)
            arriero.keep_convoy_state(order)
            log["step result"] = await charge(order)
            log["child result"] = await ship(order)
            log["signal"] = await changed.wait()
            request = await asked.receive()
            log["request"] = request.value
            request.reply(request.value)
            done = arriero.callback(order_type, name="bank")
            await call_bank(done)
            log["callback"] = await done
            log["question"] = await arriero.ask("Its order?", order_type, of="desk")
            await go.wait()
            if fails:
                raise Permanent("no more of it")
            log["result of an open step"] = await pack(order)
            return order

        @workflow
        async def pack_only(order: order_type) -> order_type:  # type: ignore[valid-type]
            return await pack(order)

        self.fulfil, self.pack_only, self.ship, self.make = fulfil, pack_only, ship, make
        self.agents, self.workflows = [shop, late], [fulfil, pack_only, ship]

    def app(self, machine: Machine) -> App:
        return machine.app(self.agents, self.workflows, settings=WITH_URL)


async def run_to_go(release: Release, app: App, task_id: str, *, fails: bool) -> None:
    """Run a task up to its wait for ``go``, with something recorded in every place."""
    task = await app.submit(release.fulfil(release.make(), fails), task_id=task_id, convoy=f"c-{task_id}")
    await task.send(release.changed(release.make()))
    await within(task.request(release.asked(release.make())))
    await until(lambda: release.tokens)
    await app.complete_callback(release.tokens.pop(), release.make())

    async def has_asked() -> None:
        while not any(step.name == "question:desk" for step in (await task.view()).steps):
            await asyncio.sleep(0.005)

    await within(has_asked())
    await task.answer(step="question:desk", result=release.make(), by="ana", reason="seen")
    await until(lambda: "question" in release.log)
    release.log.clear()


PLACES = {
    "workflow argument",
    "step result",
    "child result",
    "signal",
    "request",
    "callback",
    "question",
    "result of an open step",
    "step argument",
}


@pytest.mark.parametrize("way", WAYS)
async def test_what_the_release_before_recorded_is_read_in_every_place(machine: Machine, way: str) -> None:
    old, new = map(Release, WAYS[way]())
    before = old.app(machine)
    async with before.running(agents=["shop"]):
        await run_to_go(old, before, "good", fails=False)
        await run_to_go(old, before, "bad", fails=True)
        open_step = await before.submit(old.pack_only(old.make()))
        ended = await before.submit(old.ship(old.make()), task_id="ended")
        await within(ended.result())
        await machine.event("step.opened", task=open_step.id)
    after = new.app(machine)
    async with after.running():
        assert await within(after.task("ended").result()) == new.make()
        assert await within(after.task(open_step.id).result()) == new.make()
        assert new.log.pop("step argument") == new.make()
        good, bad = after.task("good"), after.task("bad")
        await good.send(new.go(True))
        assert await within(good.result()) == new.make()
        assert {place: new.log[place] for place in PLACES} == dict.fromkeys(PLACES, new.make())
        await bad.send(new.go(True))
        with pytest.raises(TaskCompensated):
            await within(bad.result())
        assert (new.log["compensation argument"], new.log["undo result"]) == (new.make(), new.make())
        again = await after.submit(new.fulfil(new.make(), True), task_id="next", convoy="c-good")
        await until(lambda: new.log["convoy state"] is not None)
        assert new.log["convoy state"] == new.make()
        await again.cancel(by="ana", reason="seen")
        with pytest.raises(TaskCompensated):
            await within(again.result())
    await machine.check()


@pytest.mark.parametrize("way", WAYS)
async def test_a_submission_that_a_new_release_repeats_is_the_same_task(machine: Machine, way: str) -> None:
    old, new = map(Release, WAYS[way]())
    before, after = old.app(machine), new.app(machine)
    async with before.running():
        await within((await before.submit(old.ship(old.make()), task_id="s-1")).result())
        await before.submit(old.pack_only(old.make()), task_id="p-1")
    async with after.running():
        again = await after.submit(new.ship(new.make()), task_id="s-1")
        assert not again.created
        assert await within(again.result()) == new.make()
        with pytest.raises(TaskExists):
            await after.submit(new.ship(new.make()), task_id="p-1")


async def test_a_convoy_keeps_its_state_for_the_next_release(machine: Machine) -> None:
    old, new = map(Release, make_upcast())
    before, after = old.app(machine), new.app(machine)
    async with before.running():
        await run_to_go(old, before, "first", fails=False)
        task = before.task("first")
        await task.send(old.go(True))
        await within(task.result())
    async with after.running():
        second = await after.submit(new.fulfil(new.make(), False), task_id="second", convoy="c-first")
        await until(lambda: "convoy state" in new.log)
        assert new.log["convoy state"] == new.make()
        await second.cancel(by="ana", reason="seen")


# --- what cannot be read
def make_broken(fault: str) -> tuple[Seen, Seen]:
    """Make an order whose lines have prices; the next release cannot read them."""

    @dataclass
    class Line:
        price: str

    @dataclass
    class Order:
        lines: list[Line]

    old, old_line = Order, Line

    @dataclass
    class Line:  # type: ignore[no-redef]
        price: int

    @dataclass
    class Order:  # type: ignore[no-redef]
        lines: list[Line]

    if fault != "no upcast":

        @arriero.upcast(Line, from_version=1)
        def count_cents(line: dict[str, Any]) -> Any:
            if fault == "the upcast raises":
                raise LookupError("no such currency")
            return [] if fault == "the upcast returns a list" else {"price": "still a text"}

    return Seen(old, lambda: old([old_line("5"), old_line("6")])), Seen(Order, lambda: Order([Line(5)]))  # type: ignore[arg-type]


FAULTS = {
    "no upcast": ["Expected `int`, got `str` - at `$.order.lines[0].price`"],
    "the upcast raises": ["count_cents of Line from version 1", "LookupError: no such currency", "`$.order.lines[0]`"],
    "the upcast returns a list": ["count_cents of Line from version 1", "must return a dict", "`$.order.lines[0]`"],
    "the upcast returns what does not fit": ["`$.order.lines[0].price`", "after the upcast count_cents of Line"],
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_arguments_that_cannot_be_read_hold_the_task_and_name_the_field(machine: Machine, fault: str) -> None:
    old, new = map(Release, make_broken(fault))
    before, after = old.app(machine), new.app(machine)
    async with before.running(agents=["shop"]):
        broken = await before.submit(old.pack_only(old.make()))
        await machine.event("step.opened", task=broken.id)
    async with after.running(roles=["scheduler", "supervisor"]):
        other = await after.submit(new.ship(new.make()))
        assert await within(other.result()) == new.make()
        with pytest.raises(TaskFailed) as held:
            await within(after.task(broken.id).result())
    assert (held.value.state, held.value.code) == ("held", "refused_arguments")
    for said in (*FAULTS[fault], "@arriero.upcast", "run the release that recorded it"):
        assert said in held.value.reason
    await machine.check()


async def test_a_result_that_cannot_be_read_holds_the_task_and_names_the_field(machine: Machine) -> None:
    def build(of: Any, result: Any) -> tuple[Any, ...]:
        agent, go = Agent("shop"), Signal("go", bool)

        @agent.step
        async def charge() -> list[of]:  # type: ignore[valid-type]
            return [result]

        @workflow
        async def fulfil() -> None:
            await charge()
            await go.wait()

        return machine.app([agent], [fulfil]), fulfil, go

    before, fulfil, _ = build(dict[str, str], {"price": "5"})
    after, _, go = build(dict[str, int], {"price": 5})
    async with before.running():
        task_id = (await before.submit(fulfil())).id
        await machine.event("step.recorded")
    async with after.running():
        await after.task(task_id).send(go(True))
        with pytest.raises(TaskFailed) as held:
            await within(after.task(task_id).result())
    assert (held.value.state, held.value.code) == ("held", "replay")
    assert "Expected `int`, got `str` - at `$[0]" in held.value.reason
    assert "run the release that recorded it" in held.value.reason
    await machine.check()


async def test_a_step_whose_agent_cannot_read_its_arguments_holds_the_task_after_one_attempt(machine: Machine) -> None:
    old, new = map(Release, make_broken("the upcast raises"))

    before = old.app(machine)
    async with before.running(agents=["shop"]):
        broken = await before.submit(old.pack_only(old.make()))
        await machine.event("step.opened", task=broken.id)
    async with new.app(machine).running(roles=["agents"]):
        await machine.event("step.failed", task=broken.id)
    (failed,) = await machine.events("step.failed")
    assert failed["failure"]["code"] == "refused_arguments"
    assert "LookupError: no such currency - at `$.order.lines[0]`" in failed["failure"]["message"]
    assert "@arriero.upcast" in failed["failure"]["message"]
    assert await machine.events("attempt.failed") == []
    async with before.running(agents=["shop"]):
        with pytest.raises(TaskFailed) as held:
            await within(before.task(broken.id).result())
        assert (held.value.state, held.value.code) == ("held", "refused_arguments")
        await before.task(broken.id).resubmit(by="ana", reason="the release is back")
    async with before.running():
        assert await within(before.task(broken.id).result()) == old.make()
    await machine.check()


async def test_a_record_of_a_newer_version_holds_the_task_of_an_older_release(machine: Machine) -> None:
    old, new = map(Release, make_upcast())
    before, after = old.app(machine), new.app(machine)
    async with after.running(agents=["shop"]):
        task_id = (await after.submit(new.pack_only(new.make()))).id
        await machine.event("step.opened", task=task_id)
    async with before.running():
        with pytest.raises(TaskFailed) as held:
            await within(before.task(task_id).result())
        assert held.value.state == "held"
        assert "was recorded as version 2 of Order, and this code knows version 1" in held.value.reason
    async with after.running():
        await after.task(task_id).resubmit(by="ana", reason="all processes have the release now")
        assert await within(after.task(task_id).result()) == new.make()
    await machine.check()


async def test_json_without_a_version_is_of_version_1_at_every_door(machine: Machine) -> None:
    _, new = map(Release, make_upcast())
    app = new.app(machine)
    async with app.running():
        task = await app.submit(new.ship({"euros": 5}))
        assert await within(task.result()) == new.make()
        same = await app.submit(new.ship({"@arriero.version": 2, "cents": 500}))
        assert await within(same.result()) == new.make()
        with pytest.raises(InvalidInput, match="version 9 of Order, and this code knows version 2"):
            new.ship({"@arriero.version": 9, "cents": 500})
        with pytest.raises(InvalidInput, match="an object without '@arriero.version'"):
            new.ship({"cents": 500})
    await machine.check()
