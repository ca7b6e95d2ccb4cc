"""Whatever a user's type or exception raises is a failure with its cause, once; it holds its own task and nothing else."""

import asyncio
from collections.abc import Callable
from datetime import datetime, tzinfo
from typing import Any

import msgspec
import pytest
from pydantic import BaseModel, PrivateAttr, field_serializer

import arriero
from arriero import (
    Agent,
    App,
    Attempt,
    Permanent,
    StepFailed,
    Supervision,
    TaskFailed,
    Transient,
    Undo,
    testing,
    workflow,
)
from arriero.core import drive
from arriero.core.task_run import TaskRun
from arriero.errors import InvalidInput
from arriero.payloads.codec import encode, step_error_fields
from arriero.runtime import speculative_start


class Invoice(BaseModel):
    total: int
    pieces: int

    @field_serializer("total")
    def write_share(self, total: int) -> int:
        return total // self.pieces


class Money(msgspec.Struct):
    amount: int
    note: str


class Zone(tzinfo):
    def utcoffset(self, _when: datetime | None) -> Any:
        raise LookupError("no such zone")


class Dumps(BaseModel):
    """A type with a serializer of its own."""

    _error: BaseException = PrivateAttr()

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self._error = error

    def model_dump(self, **_options: Any) -> Any:
        raise self._error


def half_made() -> Money:
    money = Money(1, "x")
    del money.note
    return money


HOSTILE: dict[str, tuple[Callable[[], Any], str]] = {
    "serializer of a field": (lambda: Invoice(total=3, pieces=0), "ZeroDivisionError"),
    "unset field": (half_made, "note"),
    "time zone": (lambda: datetime(2026, 1, 1, tzinfo=Zone()), "no such zone"),
    "key error": (lambda: Dumps(KeyError("boom")), "boom"),
    "sys.exit": (lambda: Dumps(SystemExit(3)), "SystemExit"),
    "cancelled": (lambda: Dumps(asyncio.CancelledError("by itself")), "CancelledError"),
    "out of memory": (lambda: Dumps(MemoryError()), "MemoryError"),
    "bytes that are no text": (lambda: msgspec.Raw(b'"\xff"'), "cannot be recorded"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_a_type_raises_as_it_is_encoded_is_invalid_input_with_its_cause(name: str) -> None:
    make, says = HOSTILE[name]
    with pytest.raises(InvalidInput, match=says):
        encode(make(), "result of step pay")


class Shop:
    """A charge, and a workflow that then does what the test says."""

    def __init__(self, then: Callable[[], Any]) -> None:
        self.calls: list[str] = []
        agent = Agent("shop")

        @agent.step(supervision=Supervision(attempts=3))
        async def charge(attempt: Attempt) -> str:
            self.calls.append("charge")
            return "booked"

        @charge.compensation
        async def refund(undo: Undo[str]) -> None:
            self.calls.append("refund")

        @agent.step(complete_within=600)
        async def long(attempt: Attempt) -> None:
            await asyncio.Event().wait()

        @workflow
        async def pay() -> Any:
            await charge()
            return then()

        @workflow
        async def pay_in_time() -> Any:
            await charge()
            limit = asyncio.ensure_future(arriero.sleep(4))
            await asyncio.wait({asyncio.ensure_future(long()), limit}, return_when=asyncio.FIRST_COMPLETED)
            return then()

        @workflow
        async def fine() -> str:
            return await charge()

        self.pay, self.pay_in_time, self.fine = pay, pay_in_time, fine
        self.app = App("shop", agents=[agent], workflows=[pay, pay_in_time, fine])


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("driven_by", ["a result", "a timer"])
async def test_an_output_that_cannot_be_recorded_holds_its_task_and_undoes_nothing(name: str, driven_by: str) -> None:
    make, says = HOSTILE[name]
    shop = Shop(make)
    async with testing.running(shop.app) as world:
        call = shop.pay() if driven_by == "a result" else shop.pay_in_time()
        task = await world.app.submit(call)
        with pytest.raises(TaskFailed, match=says):
            await task.result()
        assert (await task.view()).state == "held"
        assert shop.calls == ["charge"]
        assert await (await world.app.submit(shop.fine())).result() == "booked"


class OutOfStock(Permanent):
    def __init__(self, sku: str) -> None:
        self.sku = sku


class Busy(Transient):
    def __init__(self, sku: str) -> None:
        self.sku = sku


class Odd(Permanent):
    """Every field is something else than it should be."""

    message = property(lambda self: 1 / 0)  # type: ignore[assignment]
    code = 7  # type: ignore[assignment]
    details = msgspec.Raw(b"\xff")

    def __init__(self) -> None:
        pass

    def __str__(self) -> str:
        raise KeyError("no text")


class Soon(Transient):
    retry_after = "soon"  # type: ignore[assignment]


def test_fields_of_a_step_error_are_read_whatever_a_subclass_made_of_it() -> None:
    assert step_error_fields(OutOfStock("sku-1")).message == "OutOfStock: sku-1"
    odd = step_error_fields(Odd())
    assert odd.message == "Odd: (its text cannot be made: KeyError)"
    assert odd.code == "7"
    assert odd.details["unrecordable"]
    assert step_error_fields(Transient("x", retry_after=3)).retry_after == 3
    soon = Soon("x")
    soon.__dict__.clear()
    assert step_error_fields(soon).retry_after is None


@pytest.mark.parametrize("error", [OutOfStock("sku-1"), Odd()], ids=["without super", "odd"])
async def test_a_permanent_error_of_a_users_own_class_fails_its_step_at_once(error: Permanent) -> None:
    agent = Agent("stock")
    calls: list[str] = []

    @agent.step
    async def reserve(attempt: Attempt) -> None:
        calls.append("reserve")
        raise error

    @workflow
    async def order() -> str:
        try:
            await reserve()
        except StepFailed as failed:
            return f"{failed.cause}, {failed.message}"
        return "reserved"

    async with testing.running(App("stock", agents=[agent], workflows=[order])) as world:
        result = await (await world.app.submit(order())).result()
    assert result.startswith(f"permanent, {type(error).__name__}")
    assert calls == ["reserve"]


async def test_a_transient_error_of_a_users_own_class_is_tried_again() -> None:
    agent = Agent("stock")
    calls: list[int] = []

    @agent.step
    async def reserve(attempt: Attempt) -> str:
        calls.append(attempt.number)
        if len(calls) == 1:
            raise Busy("sku-1")
        return "reserved"

    async with testing.running(App("stock", agents=[agent])) as world:
        assert await (await world.app.submit(reserve())).result() == "reserved"
    assert calls == [1, 1]


@pytest.mark.parametrize("when", ["as its first line", "after a step"])
async def test_a_workflow_may_refuse_with_a_class_of_its_own(when: str) -> None:
    def refuse() -> None:
        raise OutOfStock("sku-1")

    shop = Shop(refuse)

    @workflow
    async def refusing() -> None:
        refuse()

    app = App("shop", agents=shop.app.agents, workflows=[shop.pay, refusing])
    async with testing.running(app) as world:
        task = await world.app.submit(refusing() if when == "as its first line" else shop.pay())
        with pytest.raises(TaskFailed, match="OutOfStock: sku-1"):
            await task.result()
        assert (await task.view()).state == "compensated"
    assert shop.calls == ([] if when == "as its first line" else ["charge", "refund"])


@pytest.mark.parametrize("broken", ["asking", "delivering", "replaying"])
async def test_an_error_of_ours_in_driving_a_task_holds_that_task_alone(
    broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop(lambda: "paid")
    struck_task = ""

    def striking(function: Any) -> Any:
        def strike(*args: Any) -> Any:
            if any(isinstance(one, TaskRun) and one.task.task_id == struck_task for one in args):
                raise RuntimeError("our bug")
            return function(*args)

        return strike

    owners: tuple[Any, ...] = (drive, speculative_start) if broken == "asking" else (TaskRun,)
    name = "build_first_requests" if broken == "asking" else "_read_result"
    for owner in owners:
        monkeypatch.setattr(owner, name, striking(getattr(owner, name)))
    async with testing.running(shop.app) as world:
        scheduler = world.app.session.node.session.scheduler  # type: ignore[union-attr]  # it runs
        if broken == "replaying":
            task = await world.app.submit(shop.pay_in_time(), task_id="struck")
            await world.clock.advance(1)
            struck_task = "struck"
            scheduler.reload_soon(await task._find_number(), ())
        else:
            struck_task = "struck"
            task = await world.app.submit(shop.pay(), task_id="struck")
        others = [await world.app.submit(shop.fine()) for _ in range(3)]
        with pytest.raises(TaskFailed, match="could not be driven: RuntimeError: our bug"):
            await task.result()
        assert [await other.result() for other in others] == ["booked"] * 3
        assert "refund" not in shop.calls
        assert not scheduler._reloads.pending
