"""Versions of code, as a store has them."""

from ..explain.code_versions import CodeVersionView, build_code_versions
from ..store.state_store import StateStore


async def load_code_versions(store: StateStore) -> list[CodeVersionView]:
    """Load all versions that open or held tasks have, or processes alive, by App, workflow and version. Raises StoreError."""
    now, processes = await store.known_processes()
    return build_code_versions(await store.count_versions(), processes, now)
