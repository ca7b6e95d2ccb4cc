"""Limits of Agents, a part of the contract in ``store.contract``. ``register`` declares them; a Take keeps within them."""

from typing import Protocol

from ..limits import LimitsInUse


class LimitStore(Protocol):
    """Limits of Agents that all processes share."""

    async def list_limits(self) -> list[LimitsInUse]:
        """All limits that hold, by Agent and App, with what is in use of them."""
        ...

    async def remove_old_rates(self) -> None:
        """Remove calls of rate limits that no longer count. It changes no decision."""
        ...
