"""The pages of schedules: what each declares, its next and last runs, and its verbs."""

import re
from datetime import UTC, datetime, timedelta

from board_shop import HOSTILE, open_board
from server_world import NARROWED, TOKENS

ME = {"by": "ana", "reason": "a holiday"}


async def test_the_page_says_in_words_what_is_declared_and_lists_the_next_instants() -> None:
    async with open_board() as world:
        page = await world.browser.open("/schedules")
        assert "every 1 h" in page.text
        page = await world.browser.follow("hourly")
        for says in (
            "Submits order",
            "Due every 1 h",
            "While the last run is open an instant is passed over while the last run is open",
            "Missed runs only the latest missed run is run late",
            "Declared in code",
            "team = books",
        ):
            assert says in page.text
        assert world.browser.answer.text.count("Z</time></th><td>") >= 5, "the next five instants"
        assert '"regular"' in page.text


async def test_a_store_without_schedules_says_how_one_is_declared() -> None:
    async with open_board() as world:
        await world.app.schedules.remove("hourly", **ME)
        page = await world.browser.open("/schedules")
        assert "No schedule is declared." in page.text
        page = await world.browser.open("/schedules/hourly")
        assert world.browser.answer.status_code == 404


async def test_a_schedule_is_paused_and_resumed_and_the_page_says_by_whom() -> None:
    async with open_board() as world:
        page = await world.browser.open("/schedules/hourly")
        assert "resume Refused: it is not paused." in page.text
        await world.browser.follow("pause")
        page = await world.browser.send("/act/pause_schedule/hourly", field_reason=HOSTILE)
        assert "<script>alert" not in world.browser.answer.text
        assert re.search(r"Paused since .* by caller-admin : <script>alert\(1\)</script>/../\\u202e", page.text)
        assert "It is paused: nothing runs until it is resumed." in page.text
        await world.browser.follow("resume")
        page = await world.browser.send("/act/resume_schedule/hourly", field_reason="it is over")
        assert "Paused since" not in page.text


async def test_a_run_of_now_is_submitted_once_and_its_page_is_linked() -> None:
    async with open_board() as world:
        await world.browser.open("/schedules/hourly")
        await world.browser.follow("run now")
        page = await world.browser.send("/act/run_schedule_now/hourly", field_reason="the file came late")
        task_id = re.search(r"Submitted (\S+)\.", page.text)
        assert task_id is not None
        assert (await world.app.task(task_id[1]).view()).workflow == "order"
        assert (await world.app.schedules.show("hourly")).runs == 1


async def test_a_backfill_says_before_what_it_would_submit() -> None:
    async with open_board(running=False) as world:
        await world.app.schedules.add(
            "minutely", world.shop.order("a"), by="ana", reason="for a test", cron="* * * * *"
        )
        now = datetime.now(UTC).replace(second=0, microsecond=0)
        start, end = ((now - timedelta(minutes=ago)).isoformat() for ago in (4, 2))
        await world.browser.open("/schedules/minutely")
        await world.browser.follow("backfill")
        sent = {"field_start": start, "field_end": end, "field_reason": "the outage"}
        page = await world.browser.send("/act/backfill_schedule/minutely", preview="true", **sent)
        assert page.text.count("Would submit shop/minutely@") == 3
        assert (await world.app.schedules.show("minutely")).runs == 0
        page = await world.browser.send("/act/backfill_schedule/minutely", **sent)
        assert page.text.count("Submitted shop/minutely@") == 3
        await world.browser.open("/act/backfill_schedule/minutely")
        page = await world.browser.send("/act/backfill_schedule/minutely", **{**sent, "field_start": "yesterday"})
        assert world.browser.answer.status_code == 400
        assert page.find_form("/act/backfill_schedule").fields["field.start"] == "yesterday"


async def test_a_schedule_is_added_and_removed_from_the_pages() -> None:
    async with open_board() as world:
        await world.browser.open("/schedules")
        await world.browser.follow("Add a schedule")
        page = await world.browser.send(
            "/act/add_schedule",
            field_name="nightly",
            field_workflow="order",
            field_arguments='{"name": "regular"}',
            field_cron="0 3 * * *",
            field_timezone="Europe/Madrid",
            field_reason="asked by sales",
        )
        assert "cron line 0 3 * * *, in Europe/Madrid" in page.text
        page = await world.browser.open("/schedules/nightly")
        assert "Declared by caller-admin" in page.text
        await world.browser.follow("remove")
        await world.browser.send("/act/remove_schedule/nightly", field_reason="no longer needed")
        assert [one.name for one in await world.app.schedules.list()] == ["hourly"]


async def test_the_reader_sees_no_verbs_no_arguments_and_cannot_send_one() -> None:
    async with open_board() as world:
        text = await world.open_as("/schedules/hourly", TOKENS["read"])
        assert "Withheld: the token of caller-read lacks the scope read-payloads." in text
        assert "regular" not in text
        assert "Refused" not in text
        await world.browser.open("/act/pause_schedule/hourly")
        await world.browser.send("/act/pause_schedule/hourly", field_reason="I try")
        assert world.browser.answer.status_code == 403
        assert (await world.app.schedules.show("hourly")).state == "active"


async def test_a_token_that_is_restricted_sees_only_schedules_of_its_workflows() -> None:
    async with open_board() as world:
        assert "hourly" not in await world.open_as("/schedules", NARROWED)
        assert world.browser.answer.status_code == 200
        await world.browser.open("/schedules/hourly")
        assert world.browser.answer.status_code == 404


async def test_the_page_lists_what_was_decided_lately_with_links_to_the_runs() -> None:
    async with open_board() as world:
        page = await world.browser.open("/schedules/hourly")
        assert "code declared it: order, every 1 h" in page.text
        asked = await world.app.schedules.run_now("hourly", **ME)
        await world.app.schedules.pause("hourly", **ME)
        page = await world.browser.open("/schedules/hourly")
        at_pause, at_run = page.text.index('ana paused it: "a holiday"'), page.text.index("ana asked for a run now")
        assert at_pause < at_run
        await world.browser.follow(asked.task_id)
        assert world.browser.page.text.count(asked.task_id) > 0
        assert world.browser.answer.status_code == 200
