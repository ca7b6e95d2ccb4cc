"""Children through Python: which tasks a task has started, how they stand, and what a view of both says."""

import pytest
from family import booking, mended, trip_under_way, undone
from shop_world import WHO

from arriero import InvalidInput, TaskCompensated, VerbRefused
from arriero.client.children import ChildView, load_tree
from arriero.core.alerts import build_alert, format_alert_line


def states(children: list[ChildView]) -> list[tuple[str, str, bool]]:
    return [(child.id, child.state, child.detached) for child in children]


async def test_a_task_lists_the_tasks_that_it_has_started_in_the_order_of_its_steps() -> None:
    async with trip_under_way() as (_, task):
        children = await task.children()
        assert states(children) == [
            ("trip-7/tell.1", "processing", True),
            ("trip-7/booking.2", "processed", False),
            ("trip-7/booking.3", "held", False),
            ("trip-7/booking.4", "processing", False),
        ]
        assert [child.step for child in children] == ["tell", "booking", "booking[#2]", "booking[#3]"]
        assert "cannot read the reply" in children[2].reason
        assert await children_of(task, "trip-7/booking.2") == []


async def children_of(task: object, task_id: str) -> list[ChildView]:
    app = task._session  # type: ignore[attr-defined]
    from arriero.client.task import Task

    return await Task(app, task_id, None).children()


async def test_views_of_both_name_each_other() -> None:
    async with trip_under_way() as (world, task):
        view = await task.view()
        assert view.parent is view.parent_step is None
        told, flight, hotel, car = view.steps
        assert (flight.kind, flight.child, flight.child_state, flight.result) == (
            "child", "trip-7/booking.2", "processed", "booked flight",
        )  # fmt: skip
        assert (told.child, told.detached, told.state, told.result) == (
            "trip-7/tell.1",
            True,
            "completed",
            "trip-7/tell.1",
        )
        assert (hotel.child_state, hotel.state, hotel.detached) == ("held", "running", False)
        assert car.child_state == "processing"
        assert view.waiting_for == "task trip-7/booking.3 (held) and 1 more child"
        child = await world.app.task("trip-7/booking.3").view()
        assert (child.parent, child.parent_step) == ("trip-7", "booking[#2]")


async def test_its_children_are_selected_by_their_parent_and_one_of_them_is_resubmitted_alone() -> None:
    async with trip_under_way() as (world, task):
        of_trip = world.app.tasks(parent="trip-7")
        assert await of_trip.count() == 4
        mended.add("hotel")
        acted = await world.app.tasks(parent="trip-7", state="held").resubmit(**WHO)
        assert acted.done == ("trip-7/booking.3",)
        await world.clock.advance(3_700)
        assert await task.result() == ["booked flight", "booked hotel", "booked car"]
        with pytest.raises(InvalidInput, match="parent is empty"):
            world.app.tasks(parent=" ")


async def test_a_child_that_was_undone_with_its_parent_is_not_run_again_alone() -> None:
    async with trip_under_way() as (world, task):
        await task.cancel(**WHO)
        await world.clock.advance(5)
        view = await task.view()
        assert (view.state, view.waiting_for) == ("compensating", "task trip-7/booking.3 (held)")
        await world.app.task("trip-7/booking.3").compensate(**WHO)
        with pytest.raises(TaskCompensated):
            await task.result()
        assert sorted(undone) == ["car", "flight", "hotel"]
        view = await task.view()
        undos = [(step.child, step.child_state) for step in view.steps if step.kind == "compensation"]
        assert undos == [("trip-7/booking.2", "compensated")] or ("trip-7/booking.2", "compensated") in undos
        flight = world.app.task("trip-7/booking.2", booking)
        with pytest.raises(VerbRefused, match="is step booking of task 'trip-7', which is compensated") as refused:
            await flight.resubmit(**WHO)
        assert refused.value.because == "parent_undone"
        acted = await world.app.tasks(parent="trip-7", state="compensated").resubmit(**WHO, dry_run=True)
        assert (acted.done, len(acted.refused)) == ((), 3)


async def test_a_step_that_is_a_running_child_is_not_answered_in_its_place() -> None:
    async with trip_under_way() as (_, task):
        with pytest.raises(VerbRefused, match=r"booking\[#2\] is task 'trip-7/booking.3', which has not ended"):
            await task.answer(**WHO, step="booking[#2]", result="done")
        with pytest.raises(VerbRefused, match="no open step whose limits could change; limits of 2 child tasks"):
            await task.adjust(**WHO, attempts=9)


async def test_the_alert_of_a_held_child_names_its_parent() -> None:
    async with trip_under_way() as (world, _):
        (row,) = await world.app.session.store.alerts()
        alert = build_alert(row, "store")
        assert (alert.task_id, alert.parent) == ("trip-7/booking.3", "trip-7")
        assert "(cause bug, code bug, child of trip-7, alert" in format_alert_line(alert)


async def test_a_tree_shows_held_tasks_first_where_it_may_not_show_all() -> None:
    async with trip_under_way() as (world, task):
        loaded = await world.app.session.store.find(task.id)
        assert loaded is not None
        whole = await load_tree(loaded, world.app.session.store, 0)
        assert [(one.depth, one.id) for one in whole.list_tasks()] == [
            (0, "trip-7"), (1, "trip-7/tell.1"), (1, "trip-7/booking.2"), (1, "trip-7/booking.3"), (1, "trip-7/booking.4"),
        ]  # fmt: skip
        part = await load_tree(loaded, world.app.session.store, 2)
        assert [one.id for one in part.list_tasks()] == ["trip-7", "trip-7/tell.1", "trip-7/booking.3"]
        assert (part.task.children, part.task.left_out, part.left) == (4, 2, "1 processing, 1 processed")
