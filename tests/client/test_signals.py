"""Signals and requests through the public API, on a virtual clock."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from arriero import (
    Agent,
    App,
    DefinitionError,
    InvalidInput,
    ReceivedRequest,
    Request,
    RequestRefused,
    Signal,
    SignalRefused,
    SignalTimeout,
    TaskCompensated,
    TaskHeld,
    testing,
    workflow,
)
from arriero.client.signals import build_send
from arriero.errors import ArrieroError
from arriero.model.commands import Advance, AnyCommand, Claim, SendSignal
from arriero.model.signals import VALUE_BYTES_MAX
from arriero.testing import World

bank = Agent("bank")
undone: list[int] = []


@dataclass
class Approval:
    by: str
    amount: int = 0


approved = Signal("approved", Approval)
refused = Signal("refused", str)
change_address = Request("change_address", str, int)


@bank.step
async def charge(number: int) -> int:
    return number


@charge.compensation
async def refund(number: int) -> None:
    undone.append(number)


@workflow
async def order(number: int) -> str:
    await charge(number)
    approval = await approved.wait(within=timedelta(hours=1))
    return f"{approval.by} approved {approval.amount}"


@workflow
async def patient(number: int) -> str:
    try:
        approval = await approved.wait(within=number)
    except SignalTimeout as error:
        return f"{type(error).__name__} {error.code}: {error}"
    return approval.by


@workflow
async def two_ways() -> str:
    """The first decision counts; the other wait is cancelled."""
    yes, no = asyncio.ensure_future(approved.wait()), asyncio.ensure_future(refused.wait())
    done, left = await asyncio.wait({yes, no}, return_when=asyncio.FIRST_COMPLETED)
    for one in left:
        one.cancel()
    if no in done:
        return f"refused: {no.result()}"
    later = await refused.wait(within=60)
    return f"approved by {yes.result().by}, then {later}"


@workflow
async def collector(count: int) -> list[str]:
    async with asyncio.TaskGroup() as group:
        waits = [group.create_task(approved.wait()) for _ in range(count)]
    return [one.result().by for one in waits]


@workflow
async def talker(count: int) -> list[str]:
    addresses: list[str] = []
    while len(addresses) < count:
        request = await change_address.receive()
        if not request.value:
            request.refuse("an address has at least one letter")
            continue
        addresses.append(request.value)
        request.reply(len(addresses))
    return addresses


@workflow
async def silent(number: int) -> int:
    await charge(number)
    return number


@workflow
async def failing_after_reply() -> None:
    request = await change_address.receive()
    request.reply(7)
    raise RuntimeError("a bug")


@workflow
async def answers_twice() -> None:
    request = await change_address.receive()
    request.reply(1)
    request.reply(2)


@workflow
async def gives_up(number: int) -> str:
    """It cancels a wait that has a limit, and waits for another thing beyond that limit."""
    left = asyncio.ensure_future(approved.wait(within=60))
    await charge(number)
    left.cancel()
    return await refused.wait(within=number)


@workflow
async def three_waits() -> str:
    """A wait with a limit, beside others that have none."""
    limited = asyncio.ensure_future(approved.wait(within=7200))
    await refused.wait()
    await refused.wait()
    return (await limited).by


received: list[ReceivedRequest[str, int]] = []


@workflow
async def keeps() -> int:
    mine = await change_address.receive()
    received[:] = [mine]
    await refused.wait()
    mine.reply(1)
    return 1


@workflow
async def meddles() -> None:
    await change_address.receive()
    received[0].reply(2)


limits = [5000.0]


@workflow
async def other_limit(number: int) -> str:
    """The limit is another one than that of the release which opened the wait."""
    return (await approved.wait(within=limits[0])).by


@pytest.fixture
async def world() -> AsyncIterator[World]:
    undone.clear()
    received.clear()
    workflows = [order, patient, two_ways, collector, talker, silent, failing_after_reply, answers_twice]
    workflows += [gives_up, three_waits, keeps, meddles, other_limit]
    async with testing.running(App("shop", agents=[bank], workflows=workflows)) as world:
        yield world


async def test_a_signal_reaches_the_code_that_waits_for_it(world: World) -> None:
    task = await world.app.submit(order(1))
    await world.clock.advance(5)
    receipt = await task.send(approved(Approval("ana", 9)), signal_id="a-1")
    assert (receipt.signal_id, receipt.number, receipt.created) == ("a-1", 1, True)
    assert await task.result() == "ana approved 9"


async def test_a_signal_that_comes_before_the_code_waits_is_kept(world: World) -> None:
    task = await world.app.submit(order(1))
    await task.send(approved(Approval("ana")))
    assert await task.result() == "ana approved 0"


async def test_a_signal_that_is_sent_twice_under_one_id_counts_once(world: World) -> None:
    task = await world.app.submit(collector(2))
    first = await task.send(approved(Approval("ana")), signal_id="a-1")
    again = await task.send(approved(Approval("ana")), signal_id="a-1")
    assert (first.number, again.number, again.created) == (1, 1, False)
    with pytest.raises(SignalRefused, match="another signal has the id 'a-1'"):
        await task.send(approved(Approval("bob")), signal_id="a-1")
    await task.send(approved(Approval("bob")))
    assert await task.result() == ["ana", "bob"]


async def test_signals_of_one_name_go_to_waits_in_the_order_of_both(world: World) -> None:
    task = await world.app.submit(collector(5))
    for name in "abcde":
        await task.send(approved(Approval(name)))
        await world.clock.advance(1)
    assert await task.result() == list("abcde")


async def test_a_wait_whose_time_is_over_raises_in_the_code(world: World) -> None:
    task = await world.app.submit(patient(90))
    expected = "SignalTimeout signal_timeout: signal approved did not come within 1 min 30 s"
    assert await task.result() == expected


async def test_a_timeout_that_leaves_the_code_undoes_the_task(world: World) -> None:
    task = await world.app.submit(order(3))
    with pytest.raises(TaskCompensated, match="signal approved did not come within 1 h"):
        await task.result()
    assert undone == [3]


async def test_a_wait_that_the_code_has_cancelled_takes_no_signal(world: World) -> None:
    task = await world.app.submit(two_ways())
    await world.clock.advance(1)
    await task.send(approved(Approval("ana")))
    await task.send(refused("too late"))
    assert await task.result() == "approved by ana, then too late"


async def test_the_signal_that_was_sent_first_decides(world: World) -> None:
    task = await world.app.submit(two_ways())
    await task.send(refused("no money"))
    await task.send(approved(Approval("ana")))
    assert await task.result() == "refused: no money"


async def test_a_task_that_only_waits_is_held_by_no_process(world: World) -> None:
    task = await world.app.submit(collector(1))
    await world.clock.advance(1)
    loaded = await world.app.session.store.find(task.id)
    assert loaded is not None
    assert (loaded.task.state, loaded.task.locked_by, loaded.task.not_before) == ("processing", None, None)
    await world.clock.advance(1_000_000)
    await task.send(approved(Approval("ana")))
    assert await task.result() == ["ana"]


async def test_a_task_that_waits_is_cancelled_at_once(world: World) -> None:
    task = await world.app.submit(order(4))
    await world.clock.advance(5)
    await task.cancel(by="ana", reason="the customer left")
    with pytest.raises(TaskCompensated):
        await task.result()
    assert undone == [4]
    with pytest.raises(SignalRefused) as error:
        await task.send(approved(Approval("ana")))
    assert (error.value.because, error.value.state) == ("undone", "compensated")


async def test_a_value_of_another_type_is_refused_before_it_is_sent(world: World) -> None:
    with pytest.raises(InvalidInput, match="signal approved"):
        approved("yes")  # type: ignore[arg-type]  # that is the point
    with pytest.raises(InvalidInput, match=f"at most {VALUE_BYTES_MAX:,} are sent"):
        refused("x" * VALUE_BYTES_MAX)
    task = await world.app.submit(collector(1))
    with pytest.raises(InvalidInput, match=r"send takes a signal with its value, like approved\(value\)"):
        await task.send(approved)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="signal_id"):
        await task.send(approved(Approval("ana")), signal_id="")
    assert await world.app.session.store.list_signals(1) == []


async def test_waits_and_replies_belong_into_workflow_code() -> None:
    with pytest.raises(ArrieroError, match=r"works only inside a workflow: elsewhere send it"):
        await approved.wait()
    with pytest.raises(ArrieroError, match=r"works only inside a workflow: elsewhere ask"):
        await change_address.receive()
    with pytest.raises(DefinitionError, match="without '#'"):
        Signal("a#1", str)
    with pytest.raises(DefinitionError):
        Signal("odd", object)


# --- requests
async def test_a_request_gets_the_reply_of_the_code(world: World) -> None:
    task = await world.app.submit(talker(2))
    assert await task.request(change_address("Main Street 1"), timeout=60) == 1
    with pytest.raises(RequestRefused, match="an address has at least one letter"):
        await task.request(change_address(""), timeout=60)
    assert await task.request(change_address("Main Street 2"), timeout=60) == 2
    assert await task.result() == ["Main Street 1", "Main Street 2"]


async def test_a_request_under_the_same_id_gets_the_same_reply_also_after_the_end(world: World) -> None:
    task = await world.app.submit(talker(1))
    assert await task.request(change_address("Main Street 1"), request_id="r", timeout=60) == 1
    assert await task.result() == ["Main Street 1"]
    assert await task.request(change_address("Main Street 1"), request_id="r", timeout=60) == 1


async def test_a_request_to_a_task_that_never_receives_says_so(world: World) -> None:
    task = await world.app.submit(collector(1))
    with pytest.raises(TimeoutError, match="has not received it within 5 s: .* ask again with request_id='r'"):
        await task.request(change_address("x"), request_id="r", timeout=5)


async def test_a_request_to_a_task_that_ends_without_a_reply_is_refused(world: World) -> None:
    task = await world.app.submit(silent(1))
    with pytest.raises(SignalRefused, match="has not replied|has ended"):
        await task.request(change_address("x"))


async def test_a_reply_is_kept_although_the_code_fails_after_it(world: World) -> None:
    task = await world.app.submit(failing_after_reply())
    assert await task.request(change_address("x"), timeout=60) == 7
    with pytest.raises(TaskHeld, match="a bug"):
        await task.result()


async def test_a_request_is_answered_once(world: World) -> None:
    task = await world.app.submit(answers_twice())
    assert await task.request(change_address("x"), timeout=60) == 1
    with pytest.raises(TaskHeld, match="is answered already"):
        await task.result()


async def test_a_signal_under_the_name_of_a_request_is_set_aside(world: World) -> None:
    task = await world.app.submit(talker(1))
    odd = Signal("change_address", str)
    odd.kind = "request"
    await task.send(odd("Main Street 1"))
    assert await task.request(change_address("Main Street 2"), timeout=60) == 1


async def test_a_signal_for_a_wait_that_the_code_has_cancelled_holds_nothing_up(world: World) -> None:
    task = await world.app.submit(gives_up(600))
    await world.clock.advance(5)
    await task.send(approved(Approval("ana")))
    await world.clock.advance(300)
    await task.send(refused("no"))
    assert await task.result() == "no"


async def test_tasks_that_wait_for_a_signal_are_found_by_its_name(world: World) -> None:
    calls = {"waits": collector(1), "got": collector(1), "gave-up": gives_up(600), "other": silent(1)}
    tasks = {name: await world.app.submit(call, task_id=name) for name, call in calls.items()}
    await world.clock.advance(300)
    await tasks["got"].send(approved(Approval("ana")))
    await world.clock.advance(5)
    waiting = world.app.tasks(step="signal:approved", state="processing")
    assert (await waiting.pause(by="ana", reason="found", dry_run=True)).done == ("waits",)


async def test_the_limit_of_a_wait_holds_after_a_value_that_does_not_fit(world: World) -> None:
    task = await world.app.submit(three_waits())
    await world.clock.advance(5)
    unfit = Signal("approved", str)
    store = world.app.session.store
    commands = [build_send(world.app.session, 1, "signal:approved", unfit("odd").value, None, "")]
    commands.append(build_send(world.app.session, 1, "signal:refused", '"no"', None, ""))
    await store.apply(commands)
    with pytest.raises(TaskCompensated, match="signal approved did not come"):
        await task.send(refused("again"))
        await world.clock.advance(10)
        await task.result()


async def test_a_request_is_answered_by_the_task_that_received_it(world: World) -> None:
    first, second = await world.app.submit(keeps()), await world.app.submit(meddles())
    with pytest.raises(TimeoutError):
        await first.request(change_address("x"), timeout=5, request_id="r")
    with pytest.raises(SignalRefused, match="its code has not replied"):
        await second.request(change_address("y"), timeout=5)
    with pytest.raises(TaskHeld, match="was received by another task"):
        await second.result()
    await first.send(refused("now"))
    assert await first.request(change_address("x"), timeout=5, request_id="r") == 1


def note_commits(world: World, monkeypatch: pytest.MonkeyPatch) -> list[Sequence[AnyCommand]]:
    """The commits of the process from now on. It holds no task."""
    node = world.app.session.openings.find().node
    assert node is not None and node.session is not None
    assert node.session.scheduler.drivers == {}
    written: list[Sequence[AnyCommand]] = []
    committer = node.session.committer
    write = committer._write

    async def note(commands: Sequence[AnyCommand]) -> Sequence[Any]:
        written.append(commands)
        return await write(commands)

    monkeypatch.setattr(committer, "_write", note)
    return written


async def test_the_commit_of_a_signal_is_also_that_of_the_claim_of_a_task_that_waits(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = await world.app.submit(patient(3_600))
    await world.clock.advance(60)
    written = note_commits(world, monkeypatch)
    await task.send(approved(Approval("ana")))
    assert await task.result() == "ana"
    (sent, claim), (advance,) = written
    assert isinstance(sent, SendSignal)
    assert isinstance(claim, Claim)
    assert isinstance(advance, Advance)
    assert claim.only == (sent.task_no,)  # it looks for no other


async def test_behind_a_signal_whatever_is_due_is_claimed_if_others_may_come_first(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = await world.app.submit(patient(3_600))
    await world.clock.advance(60)
    written = note_commits(world, monkeypatch)
    node = world.app.session.openings.find().node
    assert node is not None and node.session is not None
    node.session.scheduler._caught_up = False  # as after a claim that left tasks behind
    await task.send(approved(Approval("ana")))
    assert await task.result() == "ana"
    _, claim = written[0]
    assert isinstance(claim, Claim)
    assert claim.only == ()


async def test_one_claim_takes_the_tasks_of_signals_that_were_sent_together(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = [await world.app.submit(patient(3_600)) for _ in range(3)]
    await world.clock.advance(60)
    written = note_commits(world, monkeypatch)
    await asyncio.gather(*(task.send(approved(Approval("ana"))) for task in tasks))
    assert [await task.result() for task in tasks] == ["ana"] * 3
    assert [type(command) for command in written[0]] == [SendSignal] * 3 + [Claim]
    assert {type(command) for commands in written[1:] for command in commands} == {Advance}


async def test_a_release_may_change_the_limit_of_a_wait_while_a_task_waits(world: World) -> None:
    limits[0] = 5000.0
    task = await world.app.submit(other_limit(1))
    await world.clock.advance(5)
    limits[0] = 100.0
    await world.clock.advance(1000)
    await task.send(approved(Approval("ana")))
    assert await task.result() == "ana"


def test_a_request_that_is_awaited_as_a_signal_names_what_to_call() -> None:
    with pytest.raises(
        DefinitionError, match=r"request change has no wait\(\): use `received = await change\.receive\(\)`"
    ):
        Request("change", str, str).wait(within=5)  # type: ignore[attr-defined]  # as a caller without types does
