"""The board of convoys and the page of a key: what they show, offer and refuse, and to whom."""

import pytest
from board_shop import HOSTILE, LONGEST, open_board
from server_world import NARROWED, TOKENS

ME = {"by": "ana", "reason": "it was checked"}


async def test_the_board_of_an_empty_store_says_how_a_convoy_begins() -> None:
    async with open_board(running=False) as world:
        page = await world.browser.open("/convoys")
        assert "No key is stopped." in page.text
        assert "A task joins a convoy by convoy= at its submission" in page.text


async def test_the_board_groups_keys_by_their_state_and_leads_to_each() -> None:
    async with open_board() as world:
        await world.block("ana", "a", "b")
        await world.app.convoy("ana").view()
        await world.block("bo")
        await world.app.convoy("bo").park(**ME)
        page = await world.browser.open("/convoys")
        assert "ana order It waits for task ana-1, which is held" in page.text
        assert "2 waiting" in page.text
        page = await world.browser.follow("ana")
        assert "Why it is there It waits for task ana-1, which is held" in page.text
        page = await world.browser.open("/convoys?state=parked")
        assert "bo" in page.links
        assert "ana" not in page.links


async def test_a_key_is_found_by_its_name() -> None:
    async with open_board() as world:
        await world.block("ana/1")
        page = await world.browser.open("/convoys?key=ana%2F1")
        assert "It waits for task ana/1-1, which is held" in page.text
        page = await world.browser.open("/convoys?key=nothing")
        assert world.browser.answer.status_code == 404
        assert "no convoy 'nothing'" in page.text


async def test_the_list_of_a_state_comes_in_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("arriero.server.console.convoy_pages.PAGE", 2)
    async with open_board(running=False) as world:
        for key in ("a", "b", "c"):
            await world.app.submit(world.shop.order("x"), convoy=key)
            await world.app.convoy(key).park(**ME)
        page = await world.browser.open("/convoys?state=parked")
        assert {"a", "b"} <= page.links.keys()
        page = await world.browser.follow("Next page")
        assert "c" in page.links
        assert "a" not in page.links


async def test_a_skip_names_what_the_page_showed_and_skips_no_other() -> None:
    async with open_board() as world:
        await world.block("ana", "bad")
        page = await world.browser.open("/convoys/ana")
        assert "Refused: the convoy is stopped; this is allowed while it is parked." in page.text
        page = await world.browser.follow("skip")
        assert page.find_form("/act/skip_convoy").fields["field.seen"] == "ana-1"
        await world.app.convoy("ana").skip(**ME)  # another operator is faster
        with pytest.raises(Exception, match="held"):
            await world.app.task("ana-2").result(timeout=60)
        page = await world.browser.send("/act/skip_convoy", field_reason="it stays so")
        assert world.browser.answer.status_code == 409
        assert "is blocked on ana-2, not on 'ana-1': look at it again" in page.text
        page = await world.browser.open("/convoys/ana")
        assert "1 set aside" not in page.text
        assert "Passed over and still held." in page.text
        assert "declined" in page.text


async def test_a_convoy_is_parked_and_released_from_its_page() -> None:
    async with open_board() as world:
        await world.block("ana", "a")
        await world.browser.open("/convoys/ana")
        await world.browser.follow("park")
        page = await world.browser.send("/act/park_convoy", field_reason="I look into it")
        assert "Done: " in page.text
        assert (await world.app.convoy("ana").view()).state == "parked"
        await world.browser.follow("release")
        await world.browser.send("/act/release_convoy", field_reason="it is well")
        assert (await world.app.convoy("ana").view()).state == "stopped"


async def test_a_policy_is_set_for_a_key_and_taken_back() -> None:
    async with open_board() as world:
        await world.block("ana")
        await world.browser.open("/convoys/ana")
        await world.browser.follow("set")
        await world.browser.send("/act/set_convoy", field_head="park", field_gap_within="2m", field_reason="carefully")
        view = await world.app.convoy("ana").view()
        assert view.own_policy == {"head": "park", "gap_within": 120.0}
        page = await world.browser.open("/convoys/ana")
        assert "If the head is held park this key" in page.text
        await world.browser.follow("set")
        await world.browser.send(
            "/act/set_convoy", field_head="workflow", field_gap_within="workflow", field_reason="as before"
        )
        assert (await world.app.convoy("ana").view()).own_policy == {}


async def test_a_task_is_moved_to_the_head() -> None:
    async with open_board() as world:
        await world.block("ana", "a", "b")
        await world.browser.open("/convoys/ana")
        page = await world.browser.follow("move to head")
        assert page.find_form("/act/move_to_head_convoy").fields["field.task_id"] == "ana-3"
        await world.browser.send("/act/move_to_head_convoy", field_reason="urgent")
        assert (await world.app.convoy("ana").view()).next_tasks == ("ana-3", "ana-2")


async def test_a_gap_shows_the_missing_numbers_and_until_when_they_are_waited_for() -> None:
    async with open_board(running=False) as world:
        await world.app.submit(world.shop.order("a"), task_id="o-3", convoy="k", sequence=3)
        page = await world.browser.open("/convoys/k")
        assert "Missing numbers 1 to 2" in page.text
        assert "Ordered by sequence" in page.text


async def test_the_reader_sees_no_verbs_and_cannot_send_one() -> None:
    async with open_board() as world:
        await world.block("ana")
        text = await world.open_as("/convoys/ana", TOKENS["read"])
        assert "It waits for task ana-1" in text
        assert "Verbs" not in text
        assert "Withheld: the token of caller-read lacks the scope read-payloads." in text
        await world.browser.open("/act/park_convoy/ana")
        await world.browser.send("/act/park_convoy", field_reason="I try")
        assert world.browser.answer.status_code == 403
        assert (await world.app.convoy("ana").view()).state == "stopped"


async def test_hostile_keys_are_shown_as_text() -> None:
    async with open_board() as world:
        for key in (HOSTILE, LONGEST):
            await world.block(key)
        page = await world.browser.open("/convoys")
        assert "<script>alert" not in world.browser.answer.text
        assert "<script>alert(1)</script>/../\\u202e" in page.text
        link = next(one for one in page.links if one.startswith("<script>"))
        page = await world.browser.follow(link)
        assert world.browser.answer.status_code == 200
        assert "<script>alert" not in world.browser.answer.text
        await world.browser.follow("park")
        await world.browser.send("/act/park_convoy", field_reason="<b>why</b>")
        assert (await world.app.convoy(HOSTILE).view()).state == "parked"


async def test_a_token_that_is_restricted_sees_no_convoy() -> None:
    async with open_board() as world:
        await world.block("ana")
        for path in ("/convoys", "/convoys/ana"):
            text = await world.open_as(path, NARROWED)
            assert world.browser.answer.status_code == 404
            assert "is restricted" in text
            assert "ana-1" not in text
        assert "Convoys" not in world.browser.page.links
