"""A night at the shop, scripted: three orders that need an operator, repaired with the commands an operator would type.

    python examples/operator_night/run.py

The shop runs in this process; every command runs in one of its own, as from a terminal, and all meet in the store. Each
stage says what must be so and stops with exit code 1 when it is not.
"""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from arriero import Alert, TaskCompensated, TaskFailed  # noqa: E402
from examples.operator_night.shop import app, bank, fulfil  # noqa: E402  # found from the repository's root

APP = "examples.operator_night.shop:app"
PATIENCE = 30  # seconds: nothing here should take one


class Night:
    """The store of this night, and the commands typed in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = f"sqlite:///{folder / 'night.db'}"
        self.alerts: asyncio.Queue[Alert] = asyncio.Queue()

    async def type(self, command: str, *, code: int = 0, quiet: bool = False) -> str:
        """Run ``arriero COMMAND`` in another process; answers with what it printed."""
        print(f"\n$ arriero {command}", flush=True)
        environment = {**os.environ, "ARRIERO_STORE": self.store, "PYTHONPATH": str(ROOT)}
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "arriero", *shlex.split(command), env=environment, cwd=self.folder,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        output = (await process.communicate())[0].decode()
        if not quiet:
            print(output.rstrip(), flush=True)
        expect(process.returncode == code, f"`arriero {command}` ended with {process.returncode}, not {code}")
        return output

    async def next_alert(self, task_id: str, state: str) -> Alert:
        """Wait for the next alert that tells so of a task."""
        async with asyncio.timeout(PATIENCE):
            while True:
                alert = await self.alerts.get()
                if (alert.task_id, alert.state) == (task_id, state):
                    print(f"\n  [pager] {alert.state}: {alert.task_id}: {alert.reason}", flush=True)
                    return alert


def expect(is_so: bool, what: str) -> None:
    """Stop the night when something is not as it must be."""
    if not is_so:
        print(f"\nnot as it should be: {what}", file=sys.stderr)
        sys.exit(1)


def says(text: str) -> None:
    print(f"\n--- {text}", flush=True)


async def a_card_is_refused(night: Night) -> None:
    says("Order 1001: the card is refused permanently. Its step says hold, so an operator is asked.")
    task = await app.submit(fulfil("1001", "expired", 4_200), task_id="1001", reply_to="web-1")
    try:
        await task.result(timeout=PATIENCE)
        expect(False, "order 1001 was processed with an expired card")
    except TaskFailed as failed:
        expect((failed.state, failed.code) == ("held", "card_expired"), f"order 1001 failed as {failed!r}")
    await night.next_alert("1001", "open")
    expect("1001" in await night.type("task list --state held"), "the order is not listed")
    explained = await night.type("task explain 1001")
    expect("card has expired" in explained and "resubmit" in explained, "the explanation lacks reason or remedy")
    says("The customer gave another card. Only the charge is done again, under a new key.")
    edit = shlex.quote(json.dumps({"card": "good"}))
    await night.type(
        f"task resubmit 1001 --app {APP} --arguments {edit} --by ana --reason 'customer gave another card'"
    )
    await task.result(timeout=PATIENCE)
    await night.next_alert("1001", "closed")
    expect(bank.pence == 4_200 and bank.calls["charge"] == 2, f"the bank holds {bank.pence} after {bank.calls}")


async def an_order_is_taken_back(night: Night) -> None:
    says("Order 1002 is processed; then the customer calls, and an operator compensates it by hand.")
    task = await app.submit(fulfil("1002", "good", 900), task_id="1002", reply_to="web-1")
    await task.result(timeout=PATIENCE)
    await night.type("task cancel 1002 --by ana --reason 'wrong verb: it has ended'", code=3)
    await night.type("task compensate 1002 --by ana --reason 'customer sent it back unopened'")
    try:
        await task.result(timeout=PATIENCE)
    except TaskCompensated as undone:
        expect("sent it back" in undone.reason, f"order 1002 was undone for {undone.reason!r}")
    expect(bank.pence == 4_200, f"the bank holds {bank.pence}, not the money of order 1001 alone")


async def a_refund_fails(night: Night) -> None:
    says("Order 1003: its undo fails, because the bank's refunds are down. It is never shown as undone.")
    task = await app.submit(fulfil("1003", "good", 1_500), task_id="1003", reply_to="web-1")
    await task.result(timeout=PATIENCE)
    bank.refunds_work = False
    await night.type("task compensate 1003 --by bo --reason 'ordered twice'")
    try:
        await task.result(timeout=PATIENCE)
        expect(False, "order 1003 ended well although its refund failed")
    except TaskFailed as failed:
        expect(failed.state == "held", f"order 1003 is {failed.state} although its refund failed")
        expect(set(failed.open_compensations) == {"charge", "reserve"}, f"still open: {failed.open_compensations}")
    await night.next_alert("1003", "open")
    explained = await night.type("task explain 1003")
    expect("charge" in explained and "resubmit" in explained, "the explanation lacks what is open or the remedy")
    await night.type("doctor", code=1)
    says("The bank is repaired; resubmit continues the undo where it stopped.")
    bank.refunds_work = True
    await night.type("task resubmit 1003 --by bo --reason 'refunds are up again'")
    try:
        await task.result(timeout=PATIENCE)
    except TaskCompensated:
        pass
    else:
        expect(False, "order 1003 is not compensated")
    await night.next_alert("1003", "closed")
    expect(bank.pence == 4_200, f"the bank holds {bank.pence}, not the money of order 1001 alone")


async def the_morning(night: Night) -> None:
    says("The morning: what each order went through, what the front was told, and the proof.")
    await night.type("history 1003")
    told = [json.loads(line) for line in (await night.type("replies web-1 --json", quiet=True)).splitlines()]
    kinds = {
        id_: [event["data"]["kind"] for event in told if event["subject"] == id_] for id_ in ("1001", "1002", "1003")
    }
    for id_, seen in kinds.items():
        print(f"{id_}: {', '.join(seen)}")
    expect(kinds["1001"][-1] == "completed", f"the front was told {kinds['1001']} of order 1001")
    expect(
        kinds["1003"][-3:] == ["held", "failed", "compensated"],
        f"its submitter was notified of {kinds['1003']} of 1003",
    )
    history = night.folder / "history.jsonl"
    history.write_text(await night.type("export", quiet=True))
    await night.type(f"check {history}")


async def main() -> None:
    with tempfile.TemporaryDirectory(prefix="arriero-night-") as folder:
        night = Night(Path(folder))

        @app.on_alert
        async def page(alert: Alert) -> None:
            await night.alerts.put(alert)

        async with app.running(store=night.store):
            await a_card_is_refused(night)
            await an_order_is_taken_back(night)
            await a_refund_fails(night)
            await the_morning(night)
    says("Every order is where it should be, and its history proves it.")


if __name__ == "__main__":
    asyncio.run(main())
