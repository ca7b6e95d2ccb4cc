"""Breakers of Agents, a part of the contract in ``store.contract``. Commands open them and act on them: see ``apply``."""

from typing import Protocol

from ..breakers import BreakerRow


class BreakerStore(Protocol):
    """Breakers of Agents."""

    async def list_breakers(self) -> list[BreakerRow]:
        """All breakers that were ever opened or paused, by Agent, App and target."""
        ...

    async def close_recovered_breakers(self, actor: str) -> int:
        """Close the breakers whose ramp is over; answers how many.

        An attempt that is to begin does that by itself. This is for breakers behind which no request waits any more.
        """
        ...
