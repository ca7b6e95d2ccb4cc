"""Lives through the year 2027 in Madrid on a virtual clock, with both changes of time, and counts the runs of schedules.

The clock goes from 02:00 to 03:00 on 28 March, and from 03:00 back to 02:00 on 31 October. It takes a few seconds, prints a
table, and exits with 1 if a schedule ran too often or too seldom. No file is written.

    python examples/schedule/run.py
"""

import asyncio
import sys
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from arriero import Agent, App, UnknownTask, testing, workflow

MADRID = "Europe/Madrid"
START = datetime(2026, 12, 31, 23, 0, tzinfo=UTC)  # when 2027 begins in Madrid
YEAR = timedelta(days=365)

press = Agent("press")


@press.step(effect_free=True)
async def write(kind: str) -> str:
    return f"report of {kind}"


@workflow
async def report(kind: str) -> str:
    return await write(kind)


app = App("reports", agents=[press], workflows=[report])


class Line(NamedTuple):
    """A schedule, how often it runs within the year, and why so often."""

    runs: int
    why: str
    options: dict[str, Any]


def cron(line: str, timezone: str = MADRID) -> dict[str, Any]:
    """The options of a schedule with a cron line."""
    return {"cron": line, "timezone": timezone}


SCHEDULES = {
    "nightly": Line(365, "03:00 comes once each day, also on 28 March, when it follows 01:59", cron("0 3 * * *")),
    "half past two": Line(365, "02:30 is moved on 28 March, and comes once on 31 October", cron("30 2 * * *")),
    "within an hour": Line(365, "*/60 2 is left out on 28 March, and comes twice on 31 October", cron("*/60 2 * * *")),
    "mondays": Line(52, "52 Mondays", cron("0 9 * * MON")),
    "each month": Line(12, "the last day of each month", cron("59 23 L * *")),
    "every 36 hours": Line(365 * 24 // 36, "elapsed time since its declaration", {"every": timedelta(hours=36)}),
    "once": Line(1, "the eclipse of 2 August", {"at": datetime(2027, 8, 2, 10, 45, tzinfo=UTC)}),
}
# On the two days: the instants in UTC that are run, and no other one. The clock changes at 01:00 UTC.
CHANGES = {
    "half past two": ("03-28 01:00", "10-31 00:30"),
    "within an hour": ("10-31 00:00", "10-31 01:00"),
    "nightly": ("03-28 01:00", "10-31 02:00"),
}


async def find_runs(world: testing.World, name: str) -> list[str]:
    """The instants of a schedule that were run on the days of the two changes, by asking for the ids that runs have."""
    found = []
    for day in (datetime(2027, 3, 28, tzinfo=UTC), datetime(2027, 10, 31, tzinfo=UTC)):
        for half_hours in range(48):
            instant = day + timedelta(minutes=30 * half_hours)
            with suppress(UnknownTask):
                await world.app.task(f"{app.name}/{name}@{instant:%Y-%m-%dT%H:%M:%SZ}").view()
                found.append(f"{instant:%m-%d %H:%M}")
    return found


async def main() -> bool:
    """Live through the year. Returns True if every count is right."""
    async with testing.running(app) as world:
        await world.clock.advance(START - world.clock.now())
        for name, line in SCHEDULES.items():
            await world.app.schedules.add(name, report(name), by="ana", reason="the example", **line.options)
        await world.clock.advance(YEAR)
        views = {view.name: view for view in await world.app.schedules.list()}
        changes = {name: tuple(await find_runs(world, name)) for name in CHANGES}
    wrong = [name for name, line in SCHEDULES.items() if (views[name].runs, views[name].passed_over) != (line.runs, 0)]
    wrong += [name for name in CHANGES if changes[name] != CHANGES[name]]
    print(f"{'schedule':16}{'runs':>6}{'expected':>10}  why")
    for name, line in SCHEDULES.items():
        print(f"{name:16}{views[name].runs:6,}{line.runs:10,}  {line.why}{'  WRONG' if name in wrong else ''}")
    print("\nruns in UTC on the days on which Madrid changes its time:")
    for name, instants in changes.items():
        print(f"{name:16}{', '.join(instants)}{'  WRONG' if name in wrong else ''}")
    return not wrong


if __name__ == "__main__":
    if not asyncio.run(main()):
        sys.exit(1)
    print("each instant of 2027 was run once")
