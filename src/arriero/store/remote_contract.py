"""Operations of a store for Agents outside of Python, a part of the contract in ``store.contract``."""

from typing import NamedTuple, Protocol

from ..model import Instant

CAPABILITY_SECRET = "capability"
SECRET_BYTES = 32


class HeldAttempt(NamedTuple):
    """An attempt that runs in a process, as its row stands."""

    step_no: int
    fence: int
    complete_by: Instant


class RemoteAgentStore(Protocol):
    """Secrets of the store, and the attempts of a process."""

    async def read_secret(self, name: str) -> bytes:
        """``SECRET_BYTES`` random bytes, the same for all processes and for ever; made when they are first asked for."""
        ...

    async def list_running_attempts(self, process_no: int) -> list[HeldAttempt]:
        """The attempts that run in a process, by step_no."""
        ...
