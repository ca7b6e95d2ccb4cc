"""Verbs that need a second person, by the settings: from Python, for one task and for many."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import shop_world
from shop_world import WHO, Shop

from arriero import ApprovalNeeded, InvalidInput, VerbRefused
from arriero.client.session import load_task
from arriero.client.task_verbs import preview_verb
from arriero.config import load_configuration
from arriero.model import Verb
from arriero.testing import World

BO = {"by": "bo", "reason": "he agrees"}


@pytest.fixture
def shop() -> Shop:
    return Shop()


@asynccontextmanager
async def opened(shop: Shop) -> AsyncIterator[World]:
    """The world of a shop in which two persons must ask for a task to be cancelled."""
    async with shop_world.opened(shop, approvals={"cancel": 2}) as world:
        yield world


async def test_a_verb_waits_for_a_second_person_and_says_so(shop: Shop) -> None:
    async with opened(shop) as world:
        task = await world.app.submit(shop.order("good", 1), delay=60)
        with pytest.raises(ApprovalNeeded, match="cancel needs 2 operators; approved by ana") as needed:
            await task.cancel(**WHO)
        assert isinstance(needed.value, VerbRefused)
        assert (needed.value.task_id, needed.value.verb) == (task.id, "cancel")
        assert (await task.view()).state == "pending"
        await task.cancel(**BO)
        assert (await task.view()).state in ("compensating", "compensated")


@pytest.mark.parametrize("name", ["Ana", "ana ", " ANA", "\uff41na"])
async def test_a_name_that_people_read_as_the_same_is_the_same_person(shop: Shop, name: str) -> None:
    async with opened(shop) as world:
        task = await world.app.submit(shop.order("good", 1), delay=60)
        for by in ("ana", name, "ana", name):
            with pytest.raises(ApprovalNeeded):
                await task.cancel(by=by, reason="alone")
        await task.cancel(**BO)
        assert (await task.view()).state in ("compensating", "compensated")


async def test_a_name_in_letters_of_another_script_is_no_second_person(shop: Shop) -> None:
    async with opened(shop) as world:
        task = await world.app.submit(shop.order("good", 1), delay=60)
        for by in ("ace", "\u0430\u0441\u0435", "ACE "):
            with pytest.raises(ApprovalNeeded):
                await task.cancel(by=by, reason="alone")
        for by in ("a\u200bce", "\u0430ce"):
            with pytest.raises(InvalidInput, match="by .* (ZERO WIDTH SPACE|CYRILLIC SMALL LETTER A)"):
                await task.cancel(by=by, reason="alone")
        assert (await task.view()).state == "pending"
        await task.cancel(**BO)


async def test_a_verb_without_a_setting_needs_one_person(shop: Shop) -> None:
    async with opened(shop) as world:
        task = await world.app.submit(shop.order("good", 1), delay=60)
        await task.pause(**WHO)
        assert (await task.view()).paused


async def test_each_of_many_tasks_waits_for_a_second_person(shop: Shop) -> None:
    async with opened(shop) as world:
        for number in range(3):
            await world.app.submit(shop.order(f"o{number}", 1), task_id=f"o-{number}", delay=60)
        pending = world.app.tasks(state="pending")
        trial = await pending.cancel(**WHO, dry_run=True)
        assert (len(trial.done), trial.refused) == (3, ())
        assert trial.would_count == trial.done
        first = await pending.cancel(**WHO)
        assert (first.done, len(first.refused)) == ((), 3)
        assert all("needs 2 operators" in reason for _, reason in first.refused)
        assert (await pending.cancel(**BO, dry_run=True)).would_count == ()
        assert len((await pending.cancel(**BO)).done) == 3


async def test_a_dry_run_says_if_the_verb_would_be_kept_as_an_approval_or_carried_out(shop: Shop) -> None:
    async with opened(shop) as world:
        task = await world.app.submit(shop.order("good", 1), task_id="o", delay=60)
        pending = world.app.tasks(state="pending")
        kept = "would be kept as an approval by {}, and nothing would be done yet: it needs 2 operators"
        for _ in range(2):  # a dry run is no approval
            for who in (WHO, BO):
                trial = await pending.cancel(**who, dry_run=True)
                assert (trial.done, trial.changes) == (("o",), {"o": (kept.format(who["by"]),)})
        with pytest.raises(ApprovalNeeded):
            await task.cancel(**WHO)
        assert (await pending.cancel(**WHO, dry_run=True)).changes == {"o": (kept.format("ana"),)}
        assert (await pending.cancel(**BO, dry_run=True)).changes == {"o": ("would be carried out, approved by ana",)}
        await world.clock.advance(30)
        await task.pause(**WHO)  # ends the approvals before it
        assert (await pending.cancel(**BO, dry_run=True)).changes == {"o": (kept.format("bo"),)}


async def test_a_dry_run_of_one_task_tells_of_a_third_operator_who_is_missing(shop: Shop) -> None:
    async with shop_world.opened(shop, approvals={"cancel": 3}) as world:
        task = await world.app.submit(shop.order("good", 1), task_id="o", delay=60)
        with pytest.raises(ApprovalNeeded):
            await task.cancel(**WHO)
        session = world.app.session
        with pytest.raises(ApprovalNeeded, match="by bo, and nothing .* it needs 3 operators; approved so far by ana$"):
            await preview_verb(session, Verb.CANCEL, await load_task(session, "o"), **BO)


def test_a_number_of_persons_that_cannot_be_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for given in ("0", "11", "two"):
        monkeypatch.setenv("ARRIERO_APPROVALS_CANCEL", given)
        with pytest.raises(
            InvalidInput, match="ARRIERO_APPROVALS_CANCEL is .*; it must be a whole number from 1 to 10"
        ):
            load_configuration()
