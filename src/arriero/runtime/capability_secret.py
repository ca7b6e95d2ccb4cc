"""The secret under which the capabilities of a store are signed, in memory."""

from ..store.contract import StateStore
from ..store.contract_parts import CAPABILITY_SECRET


class CapabilitySecret:
    """Reads the secret of a store once. It changes with the store's epoch, and a process of an earlier one begins again."""

    def __init__(self) -> None:
        self._store: StateStore | None = None
        self._value = b""

    async def read(self, store: StateStore) -> bytes:
        """Read the secret of a store; of another store it is another one. Raises StoreError."""
        if store is not self._store:
            self._value = await store.read_secret(CAPABILITY_SECRET)
            self._store = store
        return self._value
