"""Programs that watch who leads."""

from datetime import timedelta

from runtime_world import QUICK, Machine, session_of, until


async def test_an_app_tells_who_leads_and_nobody_once_it_has_left(machine: Machine) -> None:
    watching = machine.app()
    async with watching:
        assert await watching.leader() is None
        async with machine.app().running(roles=["supervisor"]) as leading:
            await until(lambda: session_of(leading).leader.is_leading())
            view = await watching.leader()
            assert view is not None
            assert (view.process, view.term) == (session_of(leading).context.actor, 1)
            assert view.since is not None
            assert timedelta(0) < view.until - view.since
            assert view.until - view.since >= timedelta(seconds=QUICK.leader_seconds)
        assert await watching.leader() is None


def test_a_plain_program_asks_the_same(machine: Machine) -> None:
    with machine.app().sync as app:
        assert app.leader() is None
