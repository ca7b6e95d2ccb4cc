"""Rows that belong to no task alone, so that many may need one: their tables, keys, and what their texts must decode as.

Whoever loads this module can ask ``store.readable`` about these rows. Only a process that opens a store does.
"""

from typing import Any

import msgspec

from ..breakers import BreakerRow
from ..core.agent_metrics import decode_counts
from ..core.breaker import decode_breaker_policy
from ..core.lease import TERM_UNKNOWN
from ..core.limits import decode_begun
from ..core.schedule_instants import decode_usable
from ..core.stand_ins import FENCE_UNKNOWN, HOLDER_UNKNOWN
from ..inspection.facts import CountsRow
from ..limits import AgentLimitsRow, RateRow, read_limits
from ..model import INSTANT_END, ConvoyRow, LeaseRow, LedgerRow, TailRow
from ..processes import ProcessRow
from ..schedules import UNKNOWN_DECLARATION, ScheduleRow, encode_declaration
from ..tokens import TokenRow
from .readable import KEYS, TABLES, register_kind

SharedRow = (
    ConvoyRow
    | TailRow
    | LedgerRow
    | ProcessRow
    | BreakerRow
    | AgentLimitsRow
    | RateRow
    | LeaseRow
    | TokenRow
    | CountsRow
    | ScheduleRow
)

register_kind(
    BreakerRow,
    "breaker",
    ("app", "agent", "target"),
    {"policy": decode_breaker_policy},
    {},
    {"policy": "{}", "fence": FENCE_UNKNOWN},
)
register_kind(AgentLimitsRow, "agent_limits", ("app", "agent"), {"limits": read_limits}, {}, {"limits": "[]"})
register_kind(
    RateRow,
    "rate",
    ("app", "agent", "name", "key"),
    {},
    {"begun": decode_begun},
    {"begun": "[]", "until": INSTANT_END},
)
register_kind(
    LeaseRow, "lease", ("name",), {}, {}, {"term": TERM_UNKNOWN, "until": INSTANT_END, "holder": HOLDER_UNKNOWN}
)
register_kind(TokenRow, "token", ("token_id",), {}, {}, {})
register_kind(
    CountsRow, "agent_metrics", ("app", "process_no", "minute"), {}, {"counts": decode_counts}, {"counts": "{}"}
)
register_kind(
    ScheduleRow,
    "schedule",
    ("app", "name"),
    {"declaration": decode_usable},
    {},
    {"declaration": encode_declaration(UNKNOWN_DECLARATION)},
)


def parse_row_name(name: str) -> tuple[type[SharedRow], tuple[Any, ...]] | None:
    """The type and the key of a shared row by its name (``readable.name_row``). None: no row here has such a name."""
    table, _, key = name.partition(" ")
    kind = next((kind for kind, known in TABLES.items() if known == table), None)
    try:
        parts = msgspec.json.decode(key)
    except msgspec.DecodeError:
        return None
    is_known = kind is not None and isinstance(parts, list) and len(parts) == len(KEYS[kind])
    return (kind, tuple(parts)) if is_known and kind is not None else None
