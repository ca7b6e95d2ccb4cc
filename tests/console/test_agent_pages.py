"""The pages of Agents: what they show of a service, the curves of its last hour, and what operators may do."""

import json
import re
from html import unescape

from board_shop import HOSTILE, open_board
from server_world import NARROWED, TOKENS

from arriero.inspection.facts import CountsRow

ME = {"by": "ana", "reason": "the bank called"}


async def test_the_list_shows_health_room_and_what_waits() -> None:
    async with open_board() as world:
        page = await world.browser.open("/agents")
        assert "desk" in page.links
        assert "closed 100 %" in page.text
        page = await world.browser.follow("desk")
        assert "Waiting requests 0" in page.text
        assert "No call of it has ended within the last hour." in page.text


async def test_an_agent_is_paused_and_resumed_from_its_page() -> None:
    async with open_board() as world:
        page = await world.browser.open("/agents/desk")
        assert "resume Refused: it is not paused." in page.text
        page = await world.browser.follow("pause")
        assert page.find_form("/act/pause_agent/desk").fields["field.app"] == "shop"
        page = await world.browser.send("/act/pause_agent/desk", field_reason="the bank is closed")
        assert "Done: " in page.text
        assert re.search(r"Paused since \S+ \S+ by caller-admin : the bank is closed", page.text)
        assert "pause Refused: it is paused already, by caller-admin." in page.text
        page = await world.browser.open("/agents")
        assert "by caller-admin : the bank is closed." in page.text
        await world.browser.open("/agents/desk")
        await world.browser.follow("resume")
        page = await world.browser.send("/act/resume_agent/desk", field_reason="it is open")
        assert "Paused since" not in page.text


async def test_a_breaker_is_held_open_and_closed_from_its_page() -> None:
    async with open_board() as world:
        await world.browser.open("/agents/desk")
        await world.browser.follow("open")
        page = await world.browser.send("/act/open_agent/desk", field_reason=HOSTILE)
        assert "<script>alert" not in world.browser.answer.text
        assert "held by caller-admin : <script>alert(1)</script>/../\\u202e" in page.text
        assert "open Refused: its breaker is held open already, by caller-admin." in page.text
        await world.browser.follow("close")
        page = await world.browser.send("/act/close_agent/desk", field_reason="it is well")
        assert "close Refused: its breaker is closed." in page.text


async def test_a_target_has_its_own_breaker_and_verbs() -> None:
    async with open_board() as world:
        await world.app.agent("desk", target="eu").open(**ME)
        page = await world.browser.open("/agents/desk")
        assert "target eu" in page.text
        form = (await world.browser.follow("close")).find_form("/act/close_agent/desk")
        assert form.fields["field.target"] == "eu"
        await world.browser.send("/act/close_agent/desk", field_reason="it is well")
        assert (await world.app.agent("desk", target="eu").view()).state == "closed"


async def test_the_curves_and_the_table_show_the_same_minutes_of_the_last_hour() -> None:
    async with open_board() as world:
        store = world.app.session.store
        minute = world.app.session.store.now() // 60_000_000
        counts = {"desk": {"outcomes": {"succeeded": 3, "transient": 1}, "buckets": {"100": 4}, "seconds": 0.4}}
        row = CountsRow(app="shop", process_no=1, minute=minute - 7, calls=4, counts=json.dumps(counts))
        await store.put_agent_counts([row])
        page = await world.browser.open("/agents/desk")
        curves = [json.loads(unescape(one)) for one in re.findall(r"data-curve='([^']*)'", world.browser.answer.text)]
        assert [one["title"] for one in curves] == ["Calls in each minute", "Latency"]
        calls, failures = (one["values"] for one in curves[0]["series"])
        assert (len(calls), max(calls), max(failures)) == (61, 4, 1)
        at = curves[0]["at"][calls.index(4)]
        assert at == (minute - 7) * 60
        assert curves[0]["at"] == sorted(curves[0]["at"])
        assert [max(filter(None, one["values"])) <= 0.1 for one in curves[1]["series"]] == [True] * 3
        assert re.search(r"Z 4 1 0\.0\d+ s", page.text)


async def test_the_reader_sees_no_verbs_and_cannot_send_one() -> None:
    async with open_board() as world:
        text = await world.open_as("/agents/desk", TOKENS["read"])
        assert "Waiting requests" in text
        assert "Refused" not in text
        await world.browser.open("/act/open_agent/desk")
        await world.browser.send("/act/open_agent/desk", field_reason="I try")
        assert world.browser.answer.status_code == 403
        assert (await world.app.agent("desk").view()).state == "closed"


async def test_a_token_that_is_restricted_sees_no_agent() -> None:
    async with open_board() as world:
        for path in ("/agents", "/agents/desk"):
            assert "is restricted" in await world.open_as(path, NARROWED)
            assert world.browser.answer.status_code == 404


async def test_an_agent_that_the_store_does_not_know_has_no_page() -> None:
    async with open_board(running=False) as world:
        page = await world.browser.open("/agents/%3Cscript%3E")
        assert world.browser.answer.status_code == 404
        assert "there is no Agent '<script>'" in page.text
        assert "<script>'" not in world.browser.answer.text
        page = await world.browser.open("/agents")
        assert "No Agent is known to this store." in page.text
