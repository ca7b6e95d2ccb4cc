"""Verbs that need a second person, by the settings: from Python, for one task and for many."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import shop_world
from shop_world import WHO, Shop

from arriero import ApprovalNeeded, InvalidInput, VerbRefused
from arriero.config import load_configuration
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
        first = await pending.cancel(**WHO)
        assert (first.done, len(first.refused)) == ((), 3)
        assert all("needs 2 operators" in reason for _, reason in first.refused)
        assert len((await pending.cancel(**BO)).done) == 3


def test_a_number_of_persons_that_cannot_be_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for given in ("0", "11", "two"):
        monkeypatch.setenv("ARRIERO_APPROVALS_CANCEL", given)
        with pytest.raises(
            InvalidInput, match="ARRIERO_APPROVALS_CANCEL is .*; it must be a whole number from 1 to 10"
        ):
            load_configuration()
