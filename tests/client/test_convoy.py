"""What an operator sees of a convoy and may do to it, from Python: views, verbs, and who comes first."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from runtime_world import QUICK, Machine, eventually, within

from arriero import (
    Agent,
    App,
    Attempt,
    Convoy,
    ConvoyOutcome,
    ConvoyPolicy,
    ConvoyView,
    InvalidInput,
    Permanent,
    Supervision,
    SyncConvoy,
    TaskFailed,
    UnknownTask,
    VerbRefused,
    convoy_state,
    keep_convoy_state,
    testing,
    workflow,
)
from arriero.client import convoy
from arriero.model import ConvoyVerb

WHO: dict[str, Any] = {"by": "ana", "reason": "she says so"}
HOLD = Supervision(attempts=1, then="hold")
VERBS: dict[str, dict[str, Any]] = {
    "set": {"head": "skip"},
    "release": {},
    "skip": {},
    "park": {},
    "move_to_head": {"task_id": "o-1"},
}


class Desk:
    """Orders that are booked one by one; those named ``bad`` fail, those named ``slow`` wait for the gate."""

    def __init__(self) -> None:
        self.booked: list[str] = []
        self.gate = asyncio.Event()
        self.bad = {"bad"}
        agent = Agent("desk")

        @agent.step
        async def book(attempt: Attempt, name: str) -> None:
            if name in self.bad:
                raise Permanent("declined", code="declined")
            if name == "slow":
                await self.gate.wait()
            self.booked.append(name)

        @workflow(supervision=HOLD)
        async def order(name: str) -> int:
            count = (convoy_state(int) or 0) + 1
            await book(name)
            keep_convoy_state(count)
            return count

        @workflow(supervision=HOLD, convoy_policy=ConvoyPolicy(head="skip", gap_within=60.0))
        async def hasty(name: str) -> None:
            await book(name)

        self.agent, self.order, self.hasty = agent, order, hasty

    def app(self) -> App:
        """An App on whatever store it is run on."""
        return App("desk", agents=[self.agent], workflows=[self.order, self.hasty])


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture(params=["memory", "sqlite"])
def opened(request: pytest.FixtureRequest, machine: Machine, desk: Desk) -> Callable[[], Any]:
    """The App of the desk, running on a store of each kind."""

    @asynccontextmanager
    async def running() -> AsyncIterator[App]:
        app = desk.app()
        app.session.settings = QUICK
        async with app.running(store="memory://" if request.param == "memory" else machine.url):
            yield app

    return running


async def stopped(app: App, desk: Desk, *names: str, key: str = "k") -> Convoy:
    """A convoy that stands still on ``o-1``; others wait behind it as o-2, o-3, ..."""
    task = await app.submit(desk.order("bad"), task_id="o-1", convoy=key)
    for number, name in enumerate(names, 2):
        await app.submit(desk.order(name), task_id=f"o-{number}", convoy=key)
    with pytest.raises(TaskFailed):
        await within(task.result())
    return app.convoy(key)


async def shown(handle: Convoy, state: str) -> ConvoyView:
    """The view, once the convoy is in the state."""

    async def look() -> ConvoyView | None:
        with suppress(InvalidInput):
            view = await handle.view()
            return view if view.state == state else None
        return None

    return await eventually(look)


async def refused(handle: Convoy, verb: str, match: str, **what: Any) -> VerbRefused:
    """The verb is refused, the error names state and what is allowed, and nothing is changed."""
    view = await handle.view()
    with pytest.raises(VerbRefused, match=match) as found:
        await getattr(handle, verb)(**WHO, **what)
    assert (found.value.verb, found.value.state) == (verb, view.state)
    assert await handle.view() == view
    return found.value


# --- looking
async def test_a_view_tells_whose_turn_it_is_and_who_comes_next(desk: Desk, opened: Callable[[], Any]) -> None:
    async with opened() as app:
        for number, name in enumerate(("slow", "b", "c"), 1):
            await app.submit(desk.order(name), task_id=f"o-{number}", convoy="k")
        view = await app.convoy("k").view()
        assert (view.key, view.state, view.ordering) == ("k", "open", "place")
        assert (view.open_task, view.next_tasks, view.waiting) == ("o-1", ("o-2", "o-3"), 2)
        assert view.waiting_for == "task o-1, whose turn it is"
        assert view.policy == ConvoyPolicy()
        desk.gate.set()
        assert await within(app.task("o-3").result()) == 3
        view = await app.convoy("k").view()
        assert (view.state, view.open_task, view.next_tasks, view.value) == ("idle", None, (), 3)
        assert (view.waiting_for, view.policy, view.since) == ("a new task", None, None)
        assert desk.booked == ["slow", "b", "c"]


async def test_a_task_tells_its_convoy_its_place_and_how_many_come_before_it(
    desk: Desk, opened: Callable[[], Any]
) -> None:
    async with opened() as app:
        for number, name in enumerate(("slow", "b", "c"), 1):
            await app.submit(desk.order(name), task_id=f"o-{number}", convoy="k")
        view = await app.task("o-3").view()
        assert (view.convoy, view.place, view.sequence) == ("k", 3, None)
        assert view.waiting_for == "its turn in convoy 'k', behind 2 others; it is the turn of task o-1"
        alone = await app.submit(desk.order("d"))
        await within(alone.result())
        assert ((await alone.view()).convoy, (await alone.view()).place) == (None, None)
        desk.gate.set()


async def test_a_key_that_stands_still_on_an_error_names_the_task_and_both_ways_out(
    desk: Desk, opened: Callable[[], Any]
) -> None:
    async with opened() as app:
        handle = await stopped(app, desk, "b")
        view = await handle.view()
        assert (view.state, view.open_task, view.next_tasks) == ("stopped", "o-1", ("o-2",))
        assert view.waiting_for == "task o-1, which is held: resubmit it, or `arriero convoy skip k`"
        assert view.since == (await app.task("o-1").view()).ended_at
        assert (await app.task("o-1").view()).waiting_for == "an operator, and convoy 'k' is blocked until then"
        assert "the convoy is blocked on task o-1, which is held" in (await app.task("o-2").view()).waiting_for
        desk.bad.clear()
        await app.task("o-1").resubmit(**WHO)
        await within(app.task("o-2").result())
        assert desk.booked == ["bad", "b"]


async def test_a_gap_names_the_numbers_that_are_missing_and_until_when_they_are_waited_for(
    desk: Desk, opened: Callable[[], Any]
) -> None:
    async with opened() as app:
        for number in (3, 4, 7):
            await app.submit(desk.order(f"{number}"), task_id=f"o-{number}", convoy="k", sequence=number)
        view = await shown(app.convoy("k"), "gap")
        assert (view.ordering, view.missing, view.next_tasks) == ("sequence", ((1, 2), (5, 6)), ("o-3", "o-4", "o-7"))
        assert view.waiting_for.startswith("sequence 1 to 2, which has not come; if it does not by ")
        assert view.waiting_for.endswith(", an alert is opened")
        assert view.since is not None
        assert view.gap_until is not None
        assert (view.gap_until - view.since).total_seconds() == 3600
        assert "sequence 1 has not come" in (await app.task("o-3").view()).waiting_for
        first = await app.convoy("k").view(limit=1)
        assert (first.next_tasks, first.missing, first.waiting) == (("o-3",), ((1, 2),), 3)


@pytest.mark.parametrize("limit", [0, 1001, True, 1.5, "3"])
async def test_a_view_names_no_more_than_a_thousand(desk: Desk, opened: Callable[[], Any], limit: Any) -> None:
    async with opened() as app:
        await stopped(app, desk)
        with pytest.raises(InvalidInput, match="it must be a whole number from 1 to 1000"):
            await app.convoy("k").view(limit=limit)


async def test_convoys_are_told_by_state_page_by_page(
    desk: Desk, opened: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(convoy, "PAGE", 2)
    async with opened() as app:
        await stopped(app, desk)
        for key in ("a", "b", "c"):
            await app.submit(desk.order("slow"), convoy=key)
        await within((await app.submit(desk.order("x"), convoy="idle")).result())
        await app.submit(desk.order("slow"), convoy="parked")
        await app.convoy("parked").park(**WHO)
        keys = [view.key async for view in app.convoys()]
        assert keys == ["k", "a", "b", "c", "parked"]
        for state, expected in (("open", ["a", "b", "c"]), ("idle", ["idle"]), ("gap", []), ("parked", ["parked"])):
            assert [view.key async for view in app.convoys(state=state)] == expected
        desk.gate.set()


async def test_what_is_no_state_no_key_or_no_convoy_is_refused(desk: Desk, opened: Callable[[], Any]) -> None:
    async with opened() as app:
        with pytest.raises(InvalidInput, match="states are idle, open, stopped, gap, parked"):
            app.convoys(state="broken")
        with pytest.raises(InvalidInput):
            app.convoy("")
        with pytest.raises(InvalidInput, match="no convoy 'k' in the store"):
            await app.convoy("k").view()
    with pytest.raises(InvalidInput, match="is not open"):
        app.convoys()
    assert repr(app.convoy("k")) == "<convoy k>"


# --- verbs
@pytest.mark.parametrize("verb", VERBS)
async def test_every_verb_says_who_and_why_and_of_a_key_that_is_there(
    desk: Desk, opened: Callable[[], Any], verb: str
) -> None:
    async with opened() as app:
        task = await app.submit(desk.order("a"), task_id="o-1")
        await within(task.result())
        with pytest.raises(InvalidInput, match="no convoy 'k'"):
            await getattr(app.convoy("k"), verb)(**WHO, **VERBS[verb])
        await stopped_key(app, desk)
        before = await app.convoy("k").view()
        for who in ({"by": "", "reason": "x"}, {"by": "ana", "reason": " "}, {"by": "ana", "reason": None}):
            with pytest.raises(InvalidInput, match="a verb says who asks for it and why"):
                await getattr(app.convoy("k"), verb)(**who, **VERBS[verb])
        assert await app.convoy("k").view() == before


async def stopped_key(app: App, desk: Desk) -> None:
    task = await app.submit(desk.order("bad"), convoy="k")
    with pytest.raises(TaskFailed):
        await within(task.result())


async def test_a_skip_sets_the_task_in_error_aside_and_the_key_goes_on(desk: Desk, opened: Callable[[], Any]) -> None:
    async with opened() as app:
        handle = await stopped(app, desk, "b")
        assert await handle.skip(**WHO) == ConvoyOutcome("open", "o-2")
        await within(app.task("o-2").result())
        view = await handle.view()
        assert (view.set_aside, view.set_aside_tasks) == (1, (("o-1", "declined"),))
        aside = await app.task("o-1").view()
        assert aside.waiting_for == "an operator; convoy 'k' has set it aside and continues without it"


async def test_what_was_set_aside_and_comes_back_is_told_that_its_place_is_lost(
    desk: Desk, opened: Callable[[], Any]
) -> None:
    async with opened() as app:
        handle = await stopped(app, desk, "b")
        await handle.skip(**WHO)
        await within(app.task("o-2").result())
        await handle.park(**WHO)
        desk.bad.clear()
        await app.task("o-1").resubmit(**WHO)
        told = (await app.task("o-1").view()).waiting_for
        assert told == (
            "its turn in convoy 'k'; the convoy is parked (by ana: she says so) until `arriero convoy release k`;"
            " its place is lost: others that came after it have gone before"
        )
        await handle.release(**WHO)
        await within(app.task("o-1").result())
        assert desk.booked == ["b", "bad"]


async def test_a_parked_key_lets_its_head_end_and_begins_nothing_until_it_is_released(
    desk: Desk, opened: Callable[[], Any]
) -> None:
    async with opened() as app:
        for number, name in enumerate(("slow", "b"), 1):
            await app.submit(desk.order(name), task_id=f"o-{number}", convoy="k")
        handle = app.convoy("k")
        await handle.park(by="bo", reason="bank holiday")
        desk.gate.set()
        await within(app.task("o-1").result())
        view = await handle.view()
        assert (view.state, view.open_task, view.next_tasks) == ("parked", None, ("o-2",))
        assert view.waiting_for.startswith("its release by an operator, `arriero convoy release k`; parked since ")
        assert view.waiting_for.endswith("(by bo: bank holiday)")
        assert desk.booked == ["slow"]
        error = await refused(handle, "park", "is parked: park is not allowed there")
        assert error.allowed == ("set", "release", "skip", "move_to_head")
        await handle.release(**WHO)
        await within(app.task("o-2").result())
        await refused(handle, "release", "is idle: release is not allowed there; allowed: set, park, move_to_head")


async def test_a_parked_key_whose_head_is_held_still_waits_for_that_when_it_is_released(
    desk: Desk, opened: Callable[[], Any]
) -> None:
    async with opened() as app:
        handle = await stopped(app, desk)
        await handle.park(**WHO)
        assert (await handle.view()).waiting_for.endswith(
            "; and for task o-1, which is held: resubmit it, or `arriero convoy skip k`"
        )
        await handle.release(**WHO)
        assert (await handle.view()).state == "stopped"


async def test_a_task_that_is_moved_to_the_head_comes_before_all_others_that_wait(
    desk: Desk, opened: Callable[[], Any]
) -> None:
    async with opened() as app:
        handle = await stopped(app, desk, "b", "c", "d")
        await handle.move_to_head("o-4", **WHO)
        assert (await handle.view()).next_tasks == ("o-4", "o-2", "o-3")
        await refused(handle, "move_to_head", "task 'o-4' is the next already", task_id="o-4")
        await refused(handle, "move_to_head", "'o-1' does not wait for its turn", task_id="o-1")
        with pytest.raises(UnknownTask, match="no task 'o-9'"):
            await handle.move_to_head("o-9", **WHO)
        await handle.skip(**WHO)
        await within(app.task("o-3").result())
        assert desk.booked == ["d", "b", "c"]


async def test_a_skip_at_a_gap_goes_on_with_what_is_there(desk: Desk, opened: Callable[[], Any]) -> None:
    async with opened() as app:
        await app.submit(desk.order("3"), task_id="o-3", convoy="k", sequence=3)
        handle = app.convoy("k")
        await shown(handle, "gap")
        await refused(handle, "move_to_head", "is gap: move_to_head is not allowed there", task_id="o-3")
        await handle.skip(**WHO)
        await within(app.task("o-3").result())
        view = await handle.view()
        assert (view.state, view.missing) == ("idle", ())


async def test_a_skip_is_refused_when_the_head_is_another_than_the_one_that_was_seen(
    desk: Desk, opened: Callable[[], Any]
) -> None:
    async with opened() as app:
        handle = await stopped(app, desk, "bad")
        seen = await handle._load()
        await handle.skip(**WHO)
        with pytest.raises(TaskFailed):
            await within(app.task("o-2").result())
        with pytest.raises(VerbRefused, match="another verb came first") as found:
            await handle._operate(ConvoyVerb.SKIP, seen, **WHO)
        assert found.value.state == "stopped"
        assert (await handle.view()).open_task == "o-2"


async def test_other_verbs_mean_the_key_whatever_it_is_doing_meanwhile(desk: Desk, opened: Callable[[], Any]) -> None:
    async with opened() as app:
        handle = await stopped(app, desk, "slow")
        seen = await handle._load()
        await handle.skip(**WHO)
        await handle._operate(ConvoyVerb.PARK, seen, **WHO)
        assert (await handle.view()).state == "parked"
        desk.gate.set()


async def test_a_policy_of_its_own_holds_at_once_and_what_is_not_named_stays(
    desk: Desk, opened: Callable[[], Any]
) -> None:
    async with opened() as app:
        handle = await stopped(app, desk, "slow")
        await handle.set(**WHO, gap="park", gap_within=90)
        view = await handle.view()
        assert view.policy == ConvoyPolicy(head="wait", gap="park", gap_within=90.0)
        assert view.own_policy == {"gap": "park", "gap_within": 90.0}
        await handle.set(**WHO, head="skip")
        view = await handle.view()
        assert (view.state, view.open_task) == ("open", "o-2")
        assert view.own_policy == {"head": "skip", "gap": "park", "gap_within": 90.0}
        await handle.set(**WHO, gap=None, gap_within=None)
        assert (await handle.view()).own_policy == {"head": "skip"}
        desk.gate.set()


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({}, "set what"),
        ({"head": "stop"}, "head is 'stop'; it must be 'wait', 'skip' or 'park', or None"),
        ({"gap": 1}, "gap is 1"),
        ({"gap_within": -1}, "gap_within is -1"),
        ({"gap_within": "1h"}, "gap_within is '1h'; give seconds or a timedelta"),
    ],
    ids=str,
)
async def test_what_is_no_policy_is_refused(
    desk: Desk, opened: Callable[[], Any], given: dict[str, Any], match: str
) -> None:
    async with opened() as app:
        handle = await stopped(app, desk)
        with pytest.raises(InvalidInput, match=match):
            await handle.set(**WHO, **given)
        assert (await handle.view()).own_policy == {}


# --- where time matters
async def test_a_gap_past_its_limit_asks_for_a_person_and_comes_to_nothing_when_what_is_missing_comes(
    desk: Desk,
) -> None:
    async with testing.running(desk.app()) as world:
        await world.app.submit(desk.hasty("2"), task_id="o-2", convoy="k", sequence=2)
        await world.clock.advance(30)
        view = await world.app.convoy("k").view()
        assert "if it does not by" in view.waiting_for
        await world.clock.advance(60)
        view = await world.app.convoy("k").view()
        assert view.waiting_for == "sequence 1, which has not come: submit it, or `arriero convoy skip k`"
        assert [alert.cause for alert in await world._store.alerts()] == ["gap"]
        await world.app.submit(desk.hasty("1"), convoy="k", sequence=1)
        await world.clock.advance(1)
        assert desk.booked == ["1", "2"]
        assert await world._store.alerts() == []


async def test_a_policy_set_at_a_gap_holds_for_that_gap(desk: Desk) -> None:
    async with testing.running(desk.app()) as world:
        await world.app.submit(desk.hasty("3"), task_id="o-3", convoy="k", sequence=3)
        await world.clock.advance(1)
        await world.app.convoy("k").set(**WHO, gap="skip", gap_within=10)
        await world.clock.advance(5)
        assert desk.booked == []
        await world.clock.advance(6)
        assert desk.booked == ["3"]
        late = await world.app.submit(desk.hasty("1"), task_id="o-1", convoy="k", sequence=1)
        await world.clock.advance(1)
        view = await late.view()
        assert (view.state, view.sequence) == ("held", 1)
        ((aside, why),) = (await world.app.convoy("k").view()).set_aside_tasks
        assert (aside, "had been passed" in why) == ("o-1", True)


# --- without an event loop
def test_the_same_is_there_for_code_without_an_event_loop(machine: Machine, desk: Desk) -> None:
    app = machine.app([desk.agent], [desk.order, desk.hasty])
    with app.sync.running() as front:
        task = front.submit(desk.order("bad"), task_id="o-1", convoy="k")
        front.submit(desk.order("b"), task_id="o-2", convoy="k")
        with pytest.raises(TaskFailed):
            task.result(timeout=60)
        handle = front.convoy("k")
        assert isinstance(handle, SyncConvoy)
        assert (handle.key, repr(handle), handle.view().state) == ("k", "<convoy k>", "stopped")
        assert [view.key for view in front.convoys(state="stopped")] == ["k"]
        with pytest.raises(InvalidInput, match="states are"):
            front.convoys(state="broken")
        with pytest.raises(VerbRefused, match="release is not allowed there"):
            handle.release(**WHO)
        handle.set(**WHO, gap="park")
        handle.park(**WHO)
        handle.skip(**WHO)
        handle.release(**WHO)
        front.task("o-2").result(timeout=60)
        assert handle.view().set_aside_tasks == (("o-1", "declined"),)
    assert desk.booked == ["b"]


async def test_a_key_whose_turn_an_older_release_did_not_pass_on_goes_on_by_itself(
    machine: Machine, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a process ends its tasks as if there were no convoys. Whoever leads finds the keys that stand still by it."""
    app = machine.app([desk.agent], [desk.order])
    with monkeypatch.context() as older:
        older.setattr("arriero.core.transitions.settle_convoy", lambda *_args, **_kwargs: None)
        async with app.running(roles=["scheduler", "agents"]):
            first, second = [await app.submit(desk.order(name), convoy="k") for name in ("a", "b")]
            await within(first.result())
    async with app.running():
        assert await within(second.result()) >= 1
    assert desk.booked == ["a", "b"]


async def test_what_people_did_to_a_key_is_in_its_own_history(machine: Machine, desk: Desk) -> None:
    async with machine.app([desk.agent], [desk.order, desk.hasty]).running() as app:
        handle = await stopped(app, desk)
        await handle.park(by="bo", reason="bank holiday")
        (action,) = await machine.events("convoy.action")
        told = [action[name] for name in ("verb", "by", "reason", "before", "after")]
        assert told == ["park", "bo", "bank holiday", "stopped", "parked"]
