"""Names whose features come with later releases: they import and type-check today, and say so when they are used."""

from typing import Generic, TypeVar

T = TypeVar("T")


class ConvoyState(Generic[T]):
    """State kept for a convoy's key."""
