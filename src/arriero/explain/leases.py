"""Sentences for people about the events of leases."""

from ..events.store import LeaseBroken, LeaseGranted, LeaseLost


def describe_lease_event(event: LeaseGranted | LeaseLost | LeaseBroken, actor: str) -> str:
    """Describe an event of a lease in one sentence. ``actor``: who did it, as the history has it."""
    holder = event.owner or f"process {event.process}"
    match event:
        case LeaseGranted(term=term):
            return f"{holder} leads, in term {term}"
        case LeaseLost(term=term):
            return f"{holder} gave it back, in term {term}"
        case LeaseBroken(term=term, at_once=at_once, reason=reason):
            return f'{actor} took it from {holder}, term {term}{", at once" if at_once else ""}: "{reason}"'
