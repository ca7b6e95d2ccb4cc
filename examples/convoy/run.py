"""A day at the tills: receipts out of order, a gap, a late arrival, a failed head, and the end of the day.

    python examples/convoy/run.py

One process, a temporary SQLite file, a second or two. After each stage a board shows what the till's convoy is doing. Each
stage says what must be so and stops with exit code 1 when it is not.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

import msgspec

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from arriero import Alert, ConvoyView, InvalidInput, Task, TaskFailed, VerbRefused  # noqa: E402
from examples.convoy.tills import Drawer, app, booked, receipt  # noqa: E402  # found from the repository's root

PATIENCE = 30  # seconds: nothing here should take one
GAP_SECONDS = 0.2


class Day:
    """What was sent, and the alerts that came."""

    def __init__(self) -> None:
        self.tasks: dict[tuple[str, int], Task[int]] = {}
        self.alerts: asyncio.Queue[Alert] = asyncio.Queue()

    async def send(self, till: str, number: int, pence: int, article: str = "tea", *, is_last: bool = False) -> None:
        """What a till does: it names its key and its own number; the store does the rest."""
        self.tasks[till, number] = await app.submit(
            receipt(till, number, article, pence),
            task_id=f"{till}/{number}",
            convoy=till,
            sequence=number,
            end_of_sequence=is_last,
        )

    async def total(self, till: str, number: int) -> int:
        """What is in the drawer after a receipt, once that is booked."""
        return await self.tasks[till, number].result(timeout=PATIENCE)

    async def next_alert(self, task_id: str) -> Alert:
        async with asyncio.timeout(PATIENCE):
            while True:
                alert = await self.alerts.get()
                if (alert.task_id, alert.state) == (task_id, "open"):
                    print(f"  [pager] {alert.task_id}: {alert.reason}", flush=True)
                    return alert


def expect(is_so: bool, what: str) -> None:
    """Stop the day when something is not as it must be."""
    if not is_so:
        print(f"\nnot as it should be: {what}", file=sys.stderr)
        sys.exit(1)


def says(text: str) -> None:
    print(f"\n--- {text}", flush=True)


async def board(till: str, state: str) -> ConvoyView:
    """Wait until a till's convoy is in a state, and show it."""
    async with asyncio.timeout(PATIENCE):
        while True:
            view = await app.convoy(till).view()
            if view.state == state:
                break
            await asyncio.sleep(0.01)
    drawer = Drawer() if view.value is None else msgspec.convert(view.value, Drawer)
    waiting = ", ".join(view.next_tasks) or "none"
    print(
        f"  {till}  {view.state:<8} {drawer.receipts} receipts, {drawer.pence / 100:.2f} in the drawer",
        flush=True,
    )
    print(f"          waiting: {waiting}", flush=True)
    if view.set_aside:
        print(f"          set aside: {', '.join(task_id for task_id, _ in view.set_aside_tasks)}", flush=True)
    print(f"          it waits for {view.waiting_for}", flush=True)
    return view


async def receipts_turned_around(day: Day) -> None:
    says("Receipts 2 and 3 of till-4 overtake receipt 1. They wait for it; till-5 does not.")
    await day.send("till-4", 2, 250)
    await day.send("till-4", 3, 120)
    view = await board("till-4", "gap")
    expect(view.missing == ((1, 1),), f"missing are {view.missing}, not number 1")
    await day.send("till-5", 1, 999)
    expect(await day.total("till-5", 1) == 999, "till-5 waited for till-4")
    expect(all(till != "till-4" for till, _ in booked), f"booked before its turn: {booked}")
    await day.send("till-4", 1, 400)
    totals = [await day.total("till-4", number) for number in (1, 2, 3)]
    expect(totals == [400, 650, 770], f"the drawer held {totals}")
    await board("till-4", "idle")
    says("The line sends receipt 2 again: the same number with the same content is the same task.")
    again = await app.submit(receipt("till-4", 2, "tea", 250), convoy="till-4", sequence=2)
    expect(again.id == "till-4/2", f"it became task {again.id}")


async def a_gap_that_is_skipped(day: Day) -> None:
    says(
        f"Receipt 4 is lost. By the workflow's policy 5 would wait an hour; ana gives the key {GAP_SECONDS} s, then skip."
    )
    await day.send("till-4", 5, 300)
    await board("till-4", "gap")
    await app.convoy("till-4").set(gap="skip", gap_within=GAP_SECONDS, by="ana", reason="that till has no memory")
    expect(await day.total("till-4", 5) == 1_070, "the drawer is wrong after receipt 5")
    view = await board("till-4", "idle")
    expect(view.own_policy == {"gap": "skip", "gap_within": GAP_SECONDS}, f"its own policy is {view.own_policy}")


async def a_late_arrival(day: Day) -> None:
    says("Receipt 4 turns up after all. Its number was skipped: it is set aside, and an operator is notified.")
    await day.send("till-4", 4, 50)
    alert = await day.next_alert("till-4/4")
    expect(alert.cause == "late", f"the alert's cause is {alert.cause}")
    view = await board("till-4", "idle")
    expect([task_id for task_id, _ in view.set_aside_tasks] == ["till-4/4"], f"set aside: {view.set_aside_tasks}")
    try:
        await day.total("till-4", 4)
        expect(False, "the late receipt was booked out of order without a word")
    except TaskFailed as failed:
        expect(failed.code == "late", f"it failed with {failed.code}")
    says("Ana has it booked all the same, out of order, and is on record for it.")
    await day.tasks["till-4", 4].resubmit(by="ana", reason="the money is in the drawer")
    expect(await day.total("till-4", 4) == 1_120, "the drawer is wrong after receipt 4")


async def a_head_that_fails(day: Day) -> None:
    says("Receipt 6 names no article. Its policy parks the till: 7 waits, though nothing is wrong with it.")
    await day.send("till-4", 6, 80, article="?")
    await day.send("till-4", 7, 40)
    await day.next_alert("till-4/6")
    view = await board("till-4", "parked")
    expect(
        view.open_task == "till-4/6" and view.next_tasks == ("till-4/7",), f"{view.open_task}, then {view.next_tasks}"
    )
    says("Ana corrects it. The key stays parked until she releases it: first she looks at what else it did.")
    await day.tasks["till-4", 6].resubmit(by="ana", reason="it was a scone", arguments={"article": "scone"})
    view = await board("till-4", "parked")
    expect(view.next_tasks == ("till-4/6", "till-4/7"), f"next are {view.next_tasks}")
    expect(("till-4", 6) not in booked, "it went on while the key was parked")
    await app.convoy("till-4").release(by="ana", reason="the till's list of articles is right again")
    totals = [await day.total("till-4", number) for number in (6, 7)]
    expect(totals == [1_200, 1_240], f"the drawer held {totals}")
    await board("till-4", "idle")
    try:
        await app.convoy("till-4").release(by="ana", reason="to be sure")
        expect(False, "a key that is not parked was released")
    except VerbRefused as refused:
        expect(refused.state == "idle" and "park" in refused.allowed, f"refused with {refused!r}")


async def the_end_of_the_day(day: Day) -> None:
    says("Receipt 8 bears the end mark: nothing comes after it, and who tries is told so.")
    await day.send("till-4", 8, 10, is_last=True)
    expect(await day.total("till-4", 8) == 1_250, "the drawer is wrong at the end")
    try:
        await day.send("till-4", 9, 1)
        expect(False, "a receipt came after the end mark")
    except InvalidInput as refused:
        print(f"  refused: {refused}", flush=True)
    view = await board("till-4", "idle")
    expect(view.value == {"receipts": 8, "pence": 1_250}, f"the drawer holds {view.value}")
    order = [number for till, number in booked if till == "till-4"]
    print(f"\n  booked for till-4, in this order: {', '.join(map(str, order))}", flush=True)
    expect(order == [1, 2, 3, 5, 4, 6, 7, 8], f"booked were {order}")


async def main() -> None:
    with tempfile.TemporaryDirectory(prefix="arriero-convoy-") as folder:
        day = Day()

        @app.on_alert
        async def page(alert: Alert) -> None:
            await day.alerts.put(alert)

        async with app.running(store=f"sqlite:///{Path(folder) / 'tills.db'}"):
            await receipts_turned_around(day)
            await a_gap_that_is_skipped(day)
            await a_late_arrival(day)
            await a_head_that_fails(day)
            await the_end_of_the_day(day)
    says("Every receipt was booked once, in its till's order but for the one that an operator let through.")


if __name__ == "__main__":
    asyncio.run(main())
