"""Checks that each customer's orders were handled strictly in the ledger's order, one at a time.

Two witnesses that know nothing of convoys: the services' book, which keeps its effects in the order in which they
happened, and the tasks' own times. Nothing of an order, its undo included, may have happened after the first effect of an
order that comes later for the same customer; and none may have begun before the one before it had ended. The second also
sees orders that left no effect, such as those whose card was declined. Pure, as the books are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from .books import Discrepancy
from .effects import Effect
from .ledger import Order


@dataclass(frozen=True)
class Life:
    """What became of a task, and when, by the store's clock. ``is_set_aside``: its convoy went on without it."""

    state: str
    started_at: int | None
    ended_at: int | None
    is_set_aside: bool = False


@dataclass(frozen=True)
class Turns:
    """What the check saw: ``operations`` of so many ``customers``, and each that was out of order."""

    customers: int
    operations: int
    set_aside: tuple[str, ...]
    discrepancies: tuple[Discrepancy, ...]

    @property
    def are_kept(self) -> bool:
        return not self.discrepancies


def check_turns(orders: Iterable[Order], lives: Mapping[str, Life], effects: Iterable[Effect]) -> Turns:
    """Check the order of each customer's orders.

    Args:
        orders: in the ledger's order; those without a customer have no order to keep.
        lives: by task id, of every task there is.
        effects: the services' whole book, in the order in which they happened.
    """
    of_customer: defaultdict[str, list[str]] = defaultdict(list)
    for order in orders:
        if order.customer_id is not None:
            of_customer[order.customer_id].append(order.id)
    reasons: dict[str, str] = {}
    for customer_id, ids in of_customer.items():
        reasons |= _begun_too_early(customer_id, ids, lives)
    reasons |= _happened_too_late(of_customer, effects)
    return Turns(
        customers=len(of_customer),
        operations=sum(len(ids) for ids in of_customer.values()),
        set_aside=tuple(id_ for ids in of_customer.values() for id_ in ids if id_ in lives and lives[id_].is_set_aside),
        discrepancies=tuple(sorted(Discrepancy(id_, reason) for id_, reason in reasons.items())),
    )


def _begun_too_early(customer_id: str, ids: Sequence[str], lives: Mapping[str, Life]) -> dict[str, str]:
    """Why an order began out of its turn, by its id."""
    found: dict[str, str] = {}
    before: tuple[str, Life] | None = None  # of those before it, the one that was the last to end, or has not ended
    for id_ in ids:
        life = lives.get(id_)
        if life is None:
            continue  # the books name it: it never became a task
        if before is not None and _began_before_the_end_of(life, before[1]):
            found[id_] = f"out of order: it began before order {before[0]} of customer {customer_id} had ended"
        if before is None or _ended_later(life, before[1]):
            before = (id_, life)
    return found


def _began_before_the_end_of(life: Life, earlier: Life) -> bool:
    if life.started_at is None:
        return False
    return earlier.ended_at is None or life.started_at < earlier.ended_at


def _ended_later(life: Life, earlier: Life) -> bool:
    if earlier.ended_at is None:
        return False
    return life.ended_at is None or life.ended_at > earlier.ended_at


def _happened_too_late(of_customer: Mapping[str, Sequence[str]], effects: Iterable[Effect]) -> dict[str, str]:
    """Why something of an order happened when its turn was over, by its id; the first such effect of each."""
    spot = {id_: (customer_id, at) for customer_id, ids in of_customer.items() for at, id_ in enumerate(ids)}
    reached: dict[str, int] = {}
    found: dict[str, str] = {}
    for effect in effects:
        if effect.order_id not in spot:
            continue
        customer_id, at = spot[effect.order_id]
        furthest = reached.setdefault(customer_id, at)
        if at >= furthest:
            reached[customer_id] = at
        elif effect.order_id not in found:
            later = of_customer[customer_id][furthest]
            found[effect.order_id] = (
                f"out of order: its {effect.operation} happened after order {later} of customer {customer_id} had begun"
            )
    return found
