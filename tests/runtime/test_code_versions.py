"""Two versions of one workflow, side by side in an App and in deployments of their own."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from runtime_world import Machine, within

from arriero import Agent, App, InvalidInput, Signal, Workflow, workflow
from arriero.client.session import load_task
from arriero.client.task_explanation import load_explanation
from arriero.errors import DefinitionError
from arriero.explain.code_versions import diagnose_code_versions

go = Signal("go", int)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "state.db")


def shop(machine: Machine, *versions: int, deployment: str = "", pins: bool = False) -> tuple[App, Workflow[..., Any]]:
    """An App with these versions of ``pay``, the oldest first; each replaces the one before."""
    banks = Agent("banks")

    @banks.step
    async def old_bank(number: int) -> str:
        return "old"

    @banks.step
    async def new_bank(number: int) -> str:
        return "new"

    declared: Workflow[..., Any] | None = None
    for version in versions:
        bank = old_bank if version == 1 else new_bank

        def declare(bank: Any, version: int, before: Workflow[..., Any] | None) -> Workflow[..., Any]:
            async def pay(number: int) -> list[Any]:
                paid = await bank(number)
                return [version, paid, await go.wait()]

            options: dict[str, Any] = {} if before is None else {"replaces": before}
            return workflow(version=version, **options)(pay)

        declared = declare(bank, version, declared)
    assert declared is not None
    app = machine.app([banks], [declared])
    app.session.version_pinning = pins
    settings = app.session.settings
    assert settings is not None
    app.session.settings = msgspec.structs.replace(settings, deployment=deployment)
    return app, declared


async def begin(machine: Machine, app: App, pay: Workflow[..., Any], name: str) -> None:
    async with app.running():
        await app.submit(pay(7), task_id=name)
        await machine.event("step.opened", task=name, name="signal:go")


async def finish(app: App, *names: str) -> list[Any]:
    async with app.running():
        for name in names:
            await app.task(name).send(go(1), signal_id="go")
        return [await within(app.task(name).result()) for name in names]


async def test_old_tasks_end_on_the_old_function_and_new_ones_begin_with_the_new_one(machine: Machine) -> None:
    await begin(machine, *shop(machine, 1), "old")
    await begin(machine, *shop(machine, 1, 2), "new")
    app, _ = shop(machine, 1, 2, 3)
    assert await finish(app, "old", "new") == [[1, "old", 1], [2, "new", 1]]
    async with app:
        assert [(await app.task(name).view()).code_version for name in ("old", "new")] == [None, "2"]
    await machine.check()


async def test_a_task_waits_while_no_process_has_its_version_and_continues_once_it_was_moved(machine: Machine) -> None:
    await begin(machine, *shop(machine, 2), "new")
    app, _ = shop(machine, 3)
    async with app.running():
        await app.task("new").send(go(1), signal_id="go")
        _, why, *_ = await load_explanation(app.session.store, await load_task(app.session, "new"))
        explained = "; ".join(reason.says for reason in why.reasons)
        assert "no process alive has code version 2 of workflow pay" in explained
        assert "arriero task pin new --to 3 --reason TEXT" in explained
        assert (await app.task("new").view()).state == "processing"
        assert await app.task("new").pin("3", by="ana", reason="the same steps") == ("code version 3 (2 before)",)
        assert await within(app.task("new").result()) == [3, "new", 1]
    await machine.check()


async def test_a_pinned_task_is_continued_by_its_deployment_alone(machine: Machine) -> None:
    await begin(machine, *shop(machine, 2, deployment="blue", pins=True), "order")
    green, _ = shop(machine, 2, deployment="green", pins=True)
    blue, _ = shop(machine, 2, deployment="blue", pins=True)
    async with green.running():
        await green.task("order").send(go(1), signal_id="go")
        seen = {view.version: (view.processes, view.in_need) for view in await green.versions_view()}
        assert (seen["2@blue"], seen["2@green"]) == ((0, 1), (1, 0))
        async with blue.running():
            assert await within(blue.task("order").result()) == [2, "new", 1]
    await machine.check()


async def test_the_commands_that_are_named_for_a_task_of_a_deployment_move_it_to_code_of_none(machine: Machine) -> None:
    await begin(machine, *shop(machine, 2, deployment="blue", pins=True), "order")
    app, _ = shop(machine, 2)
    async with app.running():
        await app.task("order").send(go(1), signal_id="go")
        store = app.session.store
        _, why, *_ = await load_explanation(store, await load_task(app.session, "order"))
        assert "`arriero task pin order --to 2@ --reason TEXT`" in "; ".join(reason.says for reason in why.reasons)
        now, processes = await store.known_processes()
        (finding, *_) = diagnose_code_versions(await store.count_versions(), processes, now)
        assert finding.remedy.endswith("arriero task pin --workflow pay --code-version 2@blue --to 2@ --reason TEXT")
        await app.task("order").pin("2@", by="ana", reason="no deployments any longer")
        assert await within(app.task("order").result()) == [2, "new", 1]
    await machine.check()


async def test_one_command_moves_all_tasks_of_a_deployment(machine: Machine) -> None:
    blue, pay = shop(machine, 2, deployment="blue", pins=True)
    async with blue.running():
        for name in ("a", "b", "c"):
            await blue.submit(pay(7), task_id=name)
            await machine.event("step.opened", task=name, name="signal:go")
    green, _ = shop(machine, 2, deployment="green", pins=True)
    async with green.running():
        acted = await green.tasks(code_version="@blue").pin("@green", by="ana", reason="release 42")
        assert acted.done == ("a", "b", "c")
        for name in ("a", "b", "c"):
            await green.task(name).send(go(1), signal_id="go")
            assert await within(green.task(name).result()) == [2, "new", 1]
    await machine.check()


async def test_a_process_without_a_deployment_does_not_run_pinned_workflows(machine: Machine) -> None:
    app, _ = shop(machine, 1, pins=True)
    with pytest.raises(InvalidInput, match="set ARRIERO_DEPLOYMENT"):
        async with app.running():
            pass


async def test_a_call_of_an_old_version_is_refused_with_the_newest_one(machine: Machine) -> None:
    app, pay = shop(machine, 1, 2)
    assert pay.replaces is not None
    async with app.running():
        with pytest.raises(
            InvalidInput, match="version 1 of workflow 'pay' takes no new tasks: submit a call of version 2"
        ):
            await app.submit(pay.replaces(7))


# --- wrong declarations
async def pay(number: int) -> int:
    return number


async def other(number: int) -> int:
    return number


@pytest.mark.parametrize("version", [0, -1, 1_000_001, True, "2", 2.0])
def test_a_version_is_a_whole_number(version: Any) -> None:
    with pytest.raises(DefinitionError, match="workflow pay: version is"):
        workflow(version=version)(pay)


def test_a_version_is_greater_than_the_one_that_it_replaces() -> None:
    old = workflow(version=2, name="pay")(other)
    for version in (1, 2):
        with pytest.raises(
            DefinitionError, match=f"version {version} of workflow pay replaces version 2: give it a greater"
        ):
            workflow(version=version, replaces=old)(pay)
    with pytest.raises(DefinitionError, match="version 1 of workflow pay replaces version 2: give it a greater"):
        workflow(replaces=old)(pay)


def test_a_version_does_not_replace_itself_or_another_workflow() -> None:
    old = workflow(pay)
    with pytest.raises(DefinitionError, match="version 2 of workflow pay replaces itself"):
        workflow(version=2, replaces=old)(pay)
    with pytest.raises(
        DefinitionError, match="workflow other replaces workflow pay, which has another name: give both"
    ):
        workflow(version=2, replaces=old)(other)
    with pytest.raises(DefinitionError, match="workflow pay: replaces is"):
        workflow(version=2, replaces=pay)(pay)  # type: ignore[arg-type]


def test_two_versions_that_replace_the_same_one_are_refused_by_the_app() -> None:
    async def third(number: int) -> int:
        return number

    old = workflow(pay)
    two = workflow(version=2, replaces=old, name="pay")(other)
    three = workflow(version=3, replaces=old, name="pay")(third)
    says = "versions 2 and 3 of workflow pay both replace version 1: let version 3 replace version 2"
    for order in ([two, three], [three, two], [old, two, three]):
        with pytest.raises(DefinitionError, match=says):
            App("shop", workflows=order)
    app = App("shop", workflows=[two])
    with pytest.raises(DefinitionError, match=says):
        app.workflow(version=3, replaces=old, name="pay")(third)


def test_a_chain_of_versions_is_declared_in_any_order_and_need_not_be_listed() -> None:
    async def third(number: int) -> int:
        return number

    old = workflow(pay)
    two = workflow(version=2, replaces=old, name="pay")(other)
    three = workflow(version=3, replaces=two, name="pay")(third)
    for order in ([three], [old, two, three], [three, old], [two, three, old]):
        code = App("shop", workflows=order).session.codes["pay"]
        assert [one.version for one in code.list_versions()] == [3, 2, 1]
        assert code.definition is three
