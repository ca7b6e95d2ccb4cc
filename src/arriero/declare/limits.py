"""Limits of an Agent as users declare them. All processes share them through the store."""

from collections.abc import Callable, Sequence
from typing import Any

from ..errors import DefinitionError
from ..model.agents import LimitPolicy, encode_limits
from ..model.policies import Duration, seconds
from .declared import check_name
from .option_checks import check_key_function

MOST_MAX = 1_000_000
PER_MIN, PER_MAX = 0.01, 86_400.0  # seconds


class Limit:
    """The base of limits.

    Attributes:
        policy: the limit as it stands in the store.
        key: a function of the step's arguments; each key that it returns has a separate room. None: all share one.
    """

    def __init__(self, policy: LimitPolicy, key: Callable[..., str] | None) -> None:
        self.policy = policy
        self.key = key


class Concurrent(Limit):
    """Limit on concurrent attempts, in all processes together.

    Args:
        most: from 1 to 1,000,000.
        key: gets the arguments of the step and returns a text, as ``lambda order: order.merchant``. Each key has a room of
            its own, and the keys take turns.
        name: by which operators see it; "concurrent", or "concurrent by key", if it is left out.
    Raises: DefinitionError - a bad argument.
    """

    def __init__(self, most: int, *, key: Callable[..., str] | None = None, name: str | None = None) -> None:
        check_key_function("Concurrent.key", key)
        policy = LimitPolicy(
            name=_choose_name(name, "concurrent", key),
            kind="concurrent",
            most=_check_most(most, "Concurrent"),
            is_keyed=key is not None,
        )
        super().__init__(policy, key)

    def __repr__(self) -> str:
        return f"<{self.policy.name}: {self.policy.most} at a time>"


class Rate(Limit):
    """Limit on calls that begin within ``per`` seconds, in all processes together.

    Args:
        most: calls, from 1 to 1,000,000.
        per: seconds or timedelta, 0.01 s to one day. In no window of that length more calls begin.
        key: as for ``Concurrent``.
        name: "rate", or "rate by key", if it is left out.
    Raises: DefinitionError - a bad argument.
    """

    def __init__(
        self, most: int, *, per: Duration, key: Callable[..., str] | None = None, name: str | None = None
    ) -> None:
        check_key_function("Rate.key", key)
        window = seconds(per, "Rate.per")
        if not PER_MIN <= window <= PER_MAX:
            raise DefinitionError(f"Rate.per is {window:g} seconds; it must lie between {PER_MIN:g} and {PER_MAX:g}")
        policy = LimitPolicy(
            name=_choose_name(name, "rate", key),
            kind="rate",
            most=_check_most(most, "Rate"),
            per=window,
            is_keyed=key is not None,
        )
        super().__init__(policy, key)

    def __repr__(self) -> str:
        return f"<{self.policy.name}: {self.policy.most} in {self.policy.per:g} s>"


def _check_most(most: Any, what: str) -> int:
    if isinstance(most, bool) or not isinstance(most, int) or not 1 <= most <= MOST_MAX:
        raise DefinitionError(
            f"{what}: {most!r} is not a limit; give a whole number from 1 to {MOST_MAX:,}. To let nothing through for a while, "
            "use `arriero agent pause`"
        )
    return most


def _choose_name(name: str | None, kind: str, key: object) -> str:
    if name is None:
        return kind if key is None else f"{kind} by key"
    return check_name(name, "a limit")


def check_limits(agent: str, limits: Sequence[Limit]) -> tuple[Limit, ...]:
    """Return the limits of an Agent. Raises DefinitionError: one is not a limit, or two have the same name."""
    if isinstance(limits, Limit | str) or not isinstance(limits, Sequence):
        raise DefinitionError(
            f"Agent {agent}: limits is {limits!r}; give a list, as [Concurrent(50), Rate(100, per=1)]"
        )
    names: set[str] = set()
    for limit in limits:
        if not isinstance(limit, Limit):
            raise DefinitionError(f"Agent {agent}: {limit!r} is not a limit; use Concurrent(...) or Rate(...)")
        if limit.policy.name in names:
            raise DefinitionError(
                f"Agent {agent} has two limits with the name {limit.policy.name!r}; give one of them another name="
            )
        names.add(limit.policy.name)
    return tuple(limits)


def encode_policies(limits: Sequence[Limit]) -> str:
    """The JSON text of an Agent's limits, as a process declares them."""
    return encode_limits(tuple(limit.policy for limit in limits))
