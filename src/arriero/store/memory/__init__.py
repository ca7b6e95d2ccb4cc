"""The memory store: the contract in dicts."""

from .store import MemoryStore

__all__ = ["MemoryStore"]
