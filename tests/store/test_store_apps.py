"""Two Apps on one store: what carries the name of the one is claimed, taken and undone by no process of the other."""

import asyncio

import msgspec
import pytest
from damaging import Damage
from store_world import DONE, FAILED, NOON, TestClock, World, step, submission, undo_of
from test_store_ledgers import Ledgers, entry

from arriero.errors import AppCollision
from arriero.model import TaskState, Turn
from arriero.model.answers import Refusal, Submitted
from arriero.model.commands import Ahead, AssignApp, HandOver
from arriero.model.moves import BeginUndo, PlanUndo, Process, PutDown
from arriero.model.processes import ProcessAbout
from arriero.model.tokens import Reach
from arriero.store.state_store import StateStore
from arriero.store.task_filter import TaskFilter

SHOP, TRAVEL = 1, 2  # numbers of the processes


def about(app: str, workflows: tuple[str, ...] = ("fulfil",), steps: tuple[tuple[str, str], ...] = ()) -> str:
    return msgspec.json.encode(ProcessAbout(app=app, workflows=workflows, steps=steps)).decode()


async def two_apps(store: StateStore) -> None:
    assert await store.register("shop-1", 3.0, about("shop")) == SHOP
    assert await store.register("travel-1", 3.0, about("travel")) == TRAVEL


def assign(task_no: int, app: str, from_app: str = "") -> AssignApp:
    return AssignApp(actor="operator", task_no=task_no, app=app, from_app=from_app, by="ana", reason="ours")


# --- claims
async def test_a_process_claims_the_tasks_of_its_own_app_and_those_that_name_none(world: World) -> None:
    await two_apps(world.store)
    await world.submit("of-shop", app="shop")
    await world.submit("of-travel", app="travel")
    await world.submit("of-nobody")
    assert await world.claimed_ids(TRAVEL, app="travel") == ["of-travel", "of-nobody"]
    assert await world.claimed_ids(TRAVEL, app="travel") == []
    assert await world.claimed_ids(SHOP, app="shop") == ["of-shop"]


async def test_a_process_that_names_no_app_claims_only_what_names_none(world: World) -> None:
    await world.submit("of-shop", app="shop")
    await world.submit("of-nobody")
    assert await world.claimed_ids() == ["of-nobody"]


async def test_a_request_that_names_no_app_is_of_the_app_of_its_task(world: World) -> None:
    """As a process of an older release leaves it that drives a task of ours."""
    await two_apps(world.store)
    await world.submit(app="shop")
    (loaded,) = await world.claim(SHOP, app="shop")
    _, (charge,) = await world.opened(loaded.task, step("charge"))
    Damage(world.store, "step", charge.step_no, "app", "")
    assert await world.take(TRAVEL, app="travel") == []
    (dispatch,) = await world.take(SHOP, app="shop")
    assert dispatch.step.step_no == charge.step_no


async def test_an_undo_is_taken_up_and_carried_out_by_its_own_app_alone(world: World) -> None:
    await two_apps(world.store)
    await world.submit(app="shop")
    (loaded,) = await world.claim(SHOP, app="shop")
    task, (charge,) = await world.running(loaded.task, "charge")
    task = (await world.advance(task, [world.reported(charge)])).task
    task = (await world.advance(task, ending=BeginUndo(FAILED))).task
    task = (await world.advance(task, ending=PutDown(world.store.now()))).task
    assert not (await world.store.due((), ("payments",), "travel")).tasks
    assert await world.claim(TRAVEL, app="travel", workflows=()) == []
    (loaded,) = await world.claim(SHOP, app="shop", workflows=())
    assert loaded.task.state is TaskState.COMPENSATING
    plan = PlanUndo(FAILED, (undo_of(charge),))
    await world.advance(loaded.task, ending=plan)
    assert await world.take(TRAVEL, app="travel") == []
    (undo,) = await world.take(SHOP, app="shop")
    assert undo.step.app == "shop"


# --- requests
async def test_a_process_takes_requests_of_its_own_app_and_those_that_name_none_in_one_order(world: World) -> None:
    await two_apps(world.store)
    for app in ("shop", "travel", ""):
        await world.submit(f"of-{app}", app=app)
        process_no = TRAVEL if app == "travel" else SHOP
        (loaded,) = await world.claim(process_no, app=app)
        await world.opened(loaded.task, step("charge"), step("reserve"))
    assert [d.step.app for d in await world.take(TRAVEL, app="travel", room=(("payments", 3),))] == [
        "travel",
        "travel",
        "",
    ]
    assert [d.step.app for d in await world.take(TRAVEL, app="travel")] == [""]
    assert [d.step.app for d in await world.take(SHOP, app="shop")] == ["shop", "shop"]


# --- what is due
async def test_what_waits_for_another_app_is_due_for_nobody_else(world: World) -> None:
    await two_apps(world.store)
    await world.submit("of-shop", app="shop")
    (loaded,) = await world.claim(SHOP, app="shop")
    await world.opened(loaded.task, step("charge"))
    await world.submit("another", app="shop")
    await world.submit("later", app="shop", delay=5.0)
    here = (("fulfil",), ("payments",))
    nothing = await world.store.due(*here, "travel")
    assert (nothing.tasks, nothing.steps, nothing.next_at) == (False, False, None)
    due = await world.store.due(*here, "shop")
    assert (due.tasks, due.steps, due.next_at) == (True, True, NOON + 5_000_000)


# --- submitting
async def test_the_id_of_a_task_whose_app_is_not_said_answers_any_app(world: World) -> None:
    await world.submit()
    (answer,) = await world.store.submit([submission(app="shop")])
    assert isinstance(answer, Submitted)
    assert not answer.created


async def test_another_app_under_a_known_id_is_refused(world: World) -> None:
    await world.submit(app="shop")
    (answer,) = await world.store.submit([submission(app="travel")])
    assert answer == Refusal("conflict", "task 'order-1' exists with another App")


async def test_another_app_under_a_used_sequence_is_refused(world: World) -> None:
    await world.submit("first", app="shop", convoy="k", sequence=1)
    (answer,) = await world.store.submit([submission("other", app="travel", convoy="k", sequence=1)])
    assert isinstance(answer, Refusal)
    assert "is another operation" in answer.detail


# --- convoys
async def test_the_key_goes_on_to_the_task_of_another_app_which_only_that_app_takes_up(world: World) -> None:
    await two_apps(world.store)
    await world.submit("first", app="shop", convoy="k")
    second = await world.submit("second", app="travel", convoy="k")
    await world.submit("third", app="shop", convoy="k")
    (loaded,) = await world.claim(SHOP, app="shop")
    assert await world.claim(TRAVEL, app="travel") == []
    answer = await world.advance(loaded.task, ending=Process("1"), hand_over=HandOver(("fulfil",), app="shop"))
    assert answer.next is None
    task = await world.task(second)
    assert (task.turn, task.locked_by) == (Turn.OPEN, None)
    assert await world.claim(SHOP, app="shop") == []
    (loaded,) = await world.claim(TRAVEL, app="travel")
    answer = await world.advance(loaded.task, ending=Process("1"), hand_over=HandOver(("fulfil",), app="travel"))
    assert answer.next is None
    assert await world.claimed_ids(SHOP, app="shop") == ["third"]


async def test_what_ran_ahead_for_the_task_of_another_app_is_dropped(world: World) -> None:
    await two_apps(world.store)
    await world.submit("first", app="shop", convoy="k")
    second = await world.submit("second", app="travel", convoy="k")
    (loaded,) = await world.claim(SHOP, app="shop")
    ahead = Ahead(second, (await world.task(second)).link, None, (step("charge", take=True),))
    hand_over = HandOver(("fulfil",), ahead, "shop")
    answer = await world.advance(loaded.task, ending=Process("1"), hand_over=hand_over)
    assert (answer.next, answer.begun) == (None, None)
    assert (await world.load(second)).steps == ()


async def test_the_key_is_handed_over_within_one_app(world: World) -> None:
    await two_apps(world.store)
    await world.submit("first", app="shop", convoy="k")
    await world.submit("second", app="shop", convoy="k")
    (loaded,) = await world.claim(SHOP, app="shop")
    answer = await world.advance(loaded.task, ending=Process("1"), hand_over=HandOver(("fulfil",), app="shop"))
    assert answer.next is not None
    assert answer.next.task.app == "shop"


# --- starting beside another App
OLDER = "a release that did not record their App"


async def test_a_second_app_with_a_workflow_of_the_name_starts_where_every_task_says_whose_it_is(world: World) -> None:
    await world.submit(app="shop")
    await two_apps(world.store)


async def test_a_second_app_is_refused_by_name_while_open_tasks_do_not_say_whose_they_are(world: World) -> None:
    await world.store.register("shop-1", 3.0, about("shop"))
    for number in range(2):
        await world.submit(f"order-{number}")
    with pytest.raises(
        AppCollision, match=f"App 'travel' and App 'shop' both have a workflow 'fulfil', and 2 .*{OLDER}"
    ):
        await world.store.register("travel-1", 3.0, about("travel"))
    _, processes = await world.store.known_processes()
    assert [process.instance for process in processes] == ["shop-1"]
    assert await world.store.register("shop-2", 3.0, about("shop")) > 1


async def test_a_task_in_error_counts_and_one_that_is_done_does_not(world: World) -> None:
    await world.store.register("shop-1", 3.0, about("shop"))
    task = await world.held()
    await world.advance(task, ending=Process("1"))
    await world.store.register("travel-1", 3.0, about("travel"))


async def test_a_step_of_the_same_name_is_reason_enough_where_tasks_may_ask_for_it(world: World) -> None:
    charge = (("payments", "charge"),)
    await world.store.register("shop-1", 3.0, about("shop", ("fulfil",), charge))
    await world.submit()
    with pytest.raises(AppCollision, match=r"both have a step payments\.charge"):
        await world.store.register("travel-1", 3.0, about("travel", ("book",), charge))
    await world.store.register("stock-1", 3.0, about("stock", ("count",), (("shelf", "count"),)))


async def test_tasks_of_a_ledger_that_is_not_let_go_yet_count(world: World) -> None:
    ledgers = Ledgers(world)
    await world.store.register("shop-1", 3.0, about("shop"))
    written = await ledgers.written(entry(1))
    opened = await ledgers.open(written)
    with pytest.raises(AppCollision, match="1 open task"):
        await world.store.register("travel-1", 3.0, about("travel"))
    (task,) = await world.store.list_tasks()
    refused = await world.apply(assign(task.task_no, "shop"))
    assert isinstance(refused, Refusal)
    assert "still letting its tasks go" in refused.detail
    await ledgers.let_go(opened)
    await world.written(assign(task.task_no, "shop"))


async def test_an_app_that_ran_once_is_known_after_its_process_is_gone(world: World) -> None:
    process_no = await world.store.register("shop-1", 3.0, about("shop"))
    await world.lose(process_no)
    await world.submit()
    with pytest.raises(AppCollision):
        await world.store.register("travel-1", 3.0, about("travel"))


async def test_of_two_that_start_at_once_only_one_begins(world: World) -> None:
    await world.submit()
    starts = [world.store.register(f"{app}-1", 3.0, about(app)) for app in ("shop", "travel", "stock")]
    results = await asyncio.gather(*starts, return_exceptions=True)
    assert sorted(isinstance(result, AppCollision) for result in results) == [False, True, True]


# --- saying whose a task is
async def test_a_task_that_is_assigned_is_its_apps_with_all_its_steps(world: World) -> None:
    await two_apps(world.store)
    await world.submit()
    (loaded,) = await world.claim(TRAVEL, app="travel")
    task, steps = await world.opened(loaded.task, step("charge"), step("reserve", take=True))
    answer = await world.written(assign(task.task_no, "shop"))
    assert (answer.task.app, answer.task.locked_by, answer.task.fence) == ("shop", None, task.fence + 1)
    (event,) = await world.last_events(task.task_no)
    assert {"type": "task.assigned", "app": "shop", "from": "", "by": "ana", "reason": "ours"}.items() <= event.items()
    assert await world.claim(TRAVEL, app="travel") == []
    assert await world.take(TRAVEL, app="travel") == []
    (loaded,) = await world.claim(SHOP, app="shop")
    (dispatch,) = await world.take(SHOP, app="shop")
    assert dispatch.step.step_no == steps[0].step_no
    reserve = await world.step(steps[1].step_no)
    assert (await world.report(reserve, DONE, TRAVEL)).task.result_count == 1  # an attempt under way counts


async def test_of_two_who_assign_a_task_the_second_is_refused(world: World) -> None:
    task_no = await world.submit()
    await world.written(assign(task_no, "shop"))
    await world.refused(assign(task_no, "travel"), "came_first")
    await world.refused(assign(task_no + 1000, "travel"), "unknown")
    await world.written(assign(task_no, "travel", "shop"))


async def test_after_all_are_assigned_the_second_app_starts(world: World) -> None:
    await world.store.register("shop-1", 3.0, about("shop"))
    task_no = await world.submit()
    await world.written(assign(task_no, "shop"))
    await world.store.register("travel-1", 3.0, about("travel"))
    assert await world.claimed_ids(TRAVEL, app="travel") == []


async def test_tasks_are_listed_by_their_app(world: World) -> None:
    await world.submit("of-shop", app="shop")
    await world.submit("of-nobody")
    for app, ids in (("shop", ["of-shop"]), ("", ["of-nobody"]), ("travel", []), (None, ["of-shop", "of-nobody"])):
        assert [task.task_id for task in await world.store.list_tasks(TaskFilter(app=app))] == ids


async def test_the_survey_tells_whose_the_waiting_tasks_and_requests_are(world: World, clock: TestClock) -> None:
    await world.submit("a", app="shop")
    (loaded,) = await world.claim(1, app="shop")
    await world.opened(loaded.task, step("charge"))
    await world.submit("b", app="travel")
    clock.move(1.0)
    survey = await world.store.survey()
    assert survey.workflows == (("travel", "fulfil"),)
    assert survey.steps == (("shop", "payments", "charge"),)


async def test_a_rename_is_kept_in_the_stores_history(world: World) -> None:
    await world.store.rename_app("web", "shop", 3, "operator ana", "one system")
    rows = [row async for row in world.store.history(0)]
    (event,) = msgspec.json.decode(rows[-1].events)
    assert event == {"type": "app.renamed", "from": "web", "app": "shop", "tasks": 3, "reason": "one system"}


async def test_lists_counts_and_messages_are_narrowed_to_apps_and_workflows(world: World) -> None:
    tasks = [
        submission(f"{app}-{workflow}-{number}", app=app, workflow=workflow, reply_to="desk")
        for number in range(2)
        for app in ("shop", "travel", "")
        for workflow in ("fulfil", "step:pay")
    ]
    await world.store.submit(tasks)
    every = [task.task_id for task in tasks]
    for reach in (
        Reach(),
        Reach(apps=("shop",)),
        Reach(apps=("shop", "travel"), workflows=("step:pay",)),
        Reach(workflows=("fulfil", "nobody's")),
        Reach(apps=("",)),
        Reach(apps=("'; DROP TABLE task",)),
    ):
        wanted = [task.task_id for task in tasks if reach.includes(task.app, task.workflow)]
        which = TaskFilter(apps=reach.apps, workflows=reach.workflows)
        assert [row.task_id for row in await world.store.list_tasks(which)] == wanted
        assert [row.task_id for row in await world.store.list_tasks(which, limit=1)] == wanted[:1]
        newest_first = await world.store.list_tasks(which, newest_first=True)
        assert [row.task_id for row in newest_first] == wanted[::-1]
        assert await world.store.count_listed(which, limit=100) == len(wanted)
        assert [status.task_id for status in await world.store.load_statuses("desk", 100, reach)] == wanted
        assert [status.task_id for status in await world.store.load_statuses("desk", 1, reach)] == wanted[:1]
    assert [status.task_id for status in await world.store.load_statuses("desk", 100)] == every
