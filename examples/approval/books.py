"""The books: what bank, warehouse, tasks and history must agree in when all orders have ended."""

import asyncio
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path

from arriero.events import decode_event_fields
from arriero.store import existing_store
from examples.approval.shop import app
from examples.approval.world import Order, World

ROOT = Path(__file__).resolve().parents[2]


async def find_errors(world: World, ends: Mapping[Order, str], folder: Path, store: str) -> list[str]:
    """Compare the books.

    Args:
        ends: how each order must end.
        folder: for the history.
    Returns: what is not as it must be, in words.
    """
    kept = await find_kept(world)  # first: what is given back leaves the books of its order
    answers = await read_answers(store)
    parcels = Counter(world.remote.parcels.values())
    errors: list[str] = []
    for order, end in ends.items():
        view = await app.task(order.id).view()
        is_sold = end == "processed"
        books = {
            "state": (view.state, end),
            "cents at the bank": (world.remote.count_net(order.id), order.cents if is_sold else 0),
            "parcels": (parcels.pop(order.id, 0), int(is_sold)),
            "collections": (len(world.remote.by_order[order.id]), 1),
            "collections withdrawn": (
                sum(one.is_withdrawn for one in world.remote.by_order[order.id]),
                int(not is_sold),
            ),
            "answers that counted": (answers.pop(order.id, []), world.counted[order.id]),
        }
        errors += [
            f"order {order.id} ({order.story}): {what}: {found}, not {wanted}"
            for what, (found, wanted) in books.items()
            if found != wanted
        ]
        if is_sold and ((payment := world.remote.payments.get(view.output or "")) is None or payment.is_refunded):
            errors.append(f"order {order.id} ({order.story}): payment {view.output} is not with the shop")
    errors += [
        f"{count} forged webhooks were answered {code}" for code, count in world.forgeries.items() if code != 401
    ]
    errors += [f"{world.kills_left} kills of the plan did not happen"] if world.kills_left else []
    errors += [f"{count} parcels of {order}, which is no order" for order, count in parcels.items()]
    errors += [f"order {order}: an answer of {by}, which no operator gave" for order, by in answers.items()]
    errors += [f"{question.name} of {question.task_id} is still open" async for question in app.questions()]
    errors += [f"payment {id} was given back and is with the shop" for id in kept]
    return errors + await asyncio.to_thread(check_history, folder, store)


async def find_kept(world: World) -> list[str]:
    """Wait until the shop has given back what it must, and find payments that the bank has not refunded all the same."""
    for payment in world.given_back:
        await app.task(f"give-back-{payment}").result(timeout=30)
    return sorted(payment for payment in world.given_back if not world.remote.payments[payment].is_refunded)


async def read_answers(url: str) -> dict[str, list[str]]:
    """Read from the history who answered, by order."""
    answers: defaultdict[str, list[str]] = defaultdict(list)
    store = existing_store(url)
    await store.open()
    try:
        async for row in store.history():
            events = {event["type"]: event for event in decode_event_fields(row)}
            if "step.answered" in events:
                loaded = await store.load(row.task_no)
                answers[loaded.task.task_id if loaded else "?"].append(str(events["operator.action"]["by"]))
    finally:
        await store.close()
    return answers


def check_history(folder: Path, store: str) -> list[str]:
    """Check the history as any user can: ``arriero export`` and ``arriero check``."""
    history = folder / "history.jsonl"
    with history.open("wb") as file:
        command = [sys.executable, "-m", "arriero", "export", "--store", store]
        subprocess.run(command, stdout=file, check=True)
    checked = subprocess.run(
        [sys.executable, "-m", "arriero", "check", str(history)], capture_output=True, text=True, check=False
    )
    print(f"arriero check: {checked.stdout.strip()}")
    return [] if checked.returncode == 0 else ["the history is not clean"]


def print_table(world: World, ends: Mapping[Order, str]) -> None:
    """Print a line for each story."""
    print(f"{'story':<22}{'delivered':>10}{'undone':>8}{'kept, EUR':>14}{'refunded, EUR':>15}  answered by")
    for story in dict.fromkeys(order.story for order in ends):
        orders = [order for order in ends if order.story == story]
        sold = sum(ends[order] == "processed" for order in orders)
        kept = sum(world.remote.count_net(order.id) for order in orders)
        names = {order.id for order in orders}
        refunded = sum(one.cents for one in world.remote.payments.values() if one.order in names and one.is_refunded)
        who = Counter(by for order in orders for by in world.counted[order.id])
        print(
            f"{story:<22}{sold:>10}{len(orders) - sold:>8}{kept / 100:>14,.2f}{refunded / 100:>15,.2f}  "
            + ", ".join(f"{by} {count}" for by, count in sorted(who.items()))
        )
