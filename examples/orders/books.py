"""Balances the services' book against the tasks: each order happened once as a whole or left no trace.

Pure: effects, orders and the final states of the tasks come in, the balanced books come out. What a state calls for is
compared operation by operation, in number and in amount, so that a charge of 0 that happened twice is seen as well.

| state of the task | what the book must hold |
|---|---|
| processed | the whole effect, each operation once, to the penny |
| compensated, held | nothing, or as much undone as done |
| any other, or none | the task has not ended: itself a discrepancy |
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from .effects import Effect
from .ledger import Order
from .operations import OPERATIONS, Operation, whole_effect

OPERATION_OF_FORWARD = {operation.name: operation for operation in OPERATIONS}
OPERATION_OF_UNDO = {operation.undo: operation for operation in OPERATIONS}


@dataclass(frozen=True, order=True)
class Discrepancy:
    """Where book and tasks disagree, and why."""

    order_id: str
    reason: str


@dataclass(frozen=True)
class Line:
    """The sum over one operation and its undo."""

    operation: Operation
    done: int
    undone: int
    expected: int
    """What the processed orders call for."""

    @property
    def net(self) -> int:
        return self.done - self.undone


@dataclass(frozen=True)
class Books:
    """The balanced books: a line for each operation, and every discrepancy, by order."""

    lines: tuple[Line, ...]
    states: Mapping[str, int]
    discrepancies: tuple[Discrepancy, ...]

    @property
    def are_balanced(self) -> bool:
        return not self.discrepancies and all(line.net == line.expected for line in self.lines)


@dataclass
class Tally:
    """How often an operation was done and undone for one order, and with which amounts in all."""

    done_count: int = 0
    done_amount: int = 0
    undone_count: int = 0
    undone_amount: int = 0

    @property
    def net_count(self) -> int:
        return self.done_count - self.undone_count

    @property
    def net_amount(self) -> int:
        return self.done_amount - self.undone_amount


Tallies = dict[Operation, Tally]


def balance(orders: Sequence[Order], states: Mapping[str, str], effects: Iterable[Effect]) -> Books:
    """Balance the book.

    Args:
        orders: what was submitted, each id once.
        states: ``process_state`` by task id, of every task there is.
        effects: the services' whole book.
    """
    known = {order.id: order for order in orders}
    tallies: defaultdict[str, Tallies] = defaultdict(lambda: {operation: Tally() for operation in OPERATIONS})
    discrepancies: list[Discrepancy] = []
    calls: Counter[tuple[str, str, str]] = Counter()
    for effect in effects:
        operation = OPERATION_OF_FORWARD.get(effect.operation) or OPERATION_OF_UNDO.get(effect.operation)
        if operation is None or operation.service != effect.service:
            reason = f"an effect of an unknown operation, {effect.service}/{effect.operation}"
            discrepancies.append(Discrepancy(effect.order_id, reason))
            continue
        _count(tallies[effect.order_id][operation], effect, is_undo=effect.operation == operation.undo)
        calls[effect.order_id, effect.operation, effect.idempotency_key] += 1
    discrepancies += _repeated(calls)
    for order in orders:
        discrepancies += _of_order(order, states.get(order.id), tallies[order.id])
    discrepancies += [Discrepancy(id, "effects of an order that nobody submitted") for id in tallies.keys() - known]
    discrepancies += [Discrepancy(id, "a task of an order that nobody submitted") for id in states.keys() - known]
    return Books(
        lines=tuple(_line(operation, orders, states, tallies) for operation in OPERATIONS),
        states=Counter(states.values()),
        discrepancies=tuple(sorted(discrepancies)),
    )


def _count(tally: Tally, effect: Effect, *, is_undo: bool) -> None:
    if is_undo:
        tally.undone_count += 1
        tally.undone_amount += effect.amount
    else:
        tally.done_count += 1
        tally.done_amount += effect.amount


def _repeated(calls: Counter[tuple[str, str, str]]) -> list[Discrepancy]:
    return [
        Discrepancy(order_id, f"{operation}: {count} effects under the one key {key}")
        for (order_id, operation, key), count in calls.items()
        if count > 1
    ]


def _of_order(order: Order, state: str | None, tallies: Tallies) -> list[Discrepancy]:
    match state:
        case "processed":
            whole = whole_effect(order)
            found = [_of_operation("processed", tallies[each], each, whole.get(each)) for each in OPERATIONS]
        case "compensated" | "held":
            found = [_of_operation(state, tallies[each], each, None) for each in OPERATIONS]
        case None:
            found = ["never became a task"]
        case _:
            found = [f"has not ended, its task is {state}"]
    return [Discrepancy(order.id, reason) for reason in found if reason is not None]


def _of_operation(state: str, tally: Tally, operation: Operation, expected: int | None) -> str | None:
    """Why the tally is not what the state calls for; None where it is. ``expected`` None: the operation is not called
    for, or not any more."""
    count = 0 if expected is None else 1
    if (tally.net_count, tally.net_amount) == (count, expected or 0):
        return None
    wanted = "none" if expected is None else f"one of {in_units(expected, operation.unit)}"
    done = f"{tally.done_count} of {in_units(tally.done_amount, operation.unit)} in all"
    undone = f"{tally.undone_count} {operation.undo} of {in_units(tally.undone_amount, operation.unit)}"
    return f"{state}, but {operation.name}: {done}, less {undone}, where there should be {wanted}"


def _line(
    operation: Operation, orders: Sequence[Order], states: Mapping[str, str], tallies: Mapping[str, Tallies]
) -> Line:
    processed = (order for order in orders if states.get(order.id) == "processed")
    return Line(
        operation=operation,
        done=sum(of_order[operation].done_amount for of_order in tallies.values()),
        undone=sum(of_order[operation].undone_amount for of_order in tallies.values()),
        expected=sum(whole_effect(order).get(operation, 0) for order in processed),
    )


def in_units(amount: int, unit: str) -> str:
    """An amount as an operator reads it: ``12.50 pounds``, ``3 pieces``."""
    return f"{as_number(amount, unit)} {unit_for_people(unit)}"


def as_number(amount: int, unit: str) -> str:
    """The amount alone, pence as pounds."""
    if unit != "pence":
        return f"{amount:,}"
    sign = "-" if amount < 0 else ""
    return f"{sign}{abs(amount) // 100:,}.{abs(amount) % 100:02}"


def unit_for_people(unit: str) -> str:
    return "pounds" if unit == "pence" else unit
