"""Limits of Agents as people see them, with what is in use."""

from collections import Counter

import msgspec

from ..core.limits import build_book, list_limits
from ..limits import LimitsInUse, read_limit_keys

KEYS_SHOWN_MAX = 10  # of a limit with keys: those that use most


class LimitView(msgspec.Struct, frozen=True, kw_only=True):
    """A limit of an Agent, or one key of it.

    Attributes:
        name: of the limit.
        kind: ``concurrent``: attempts at once. ``rate``: calls that begin within ``per`` seconds.
        most: how many it allows.
        key: empty: it has no keys, or these are the requests without one.
        in_use: attempts under way, or calls that began within the window.
    """

    name: str
    kind: str
    most: int
    per: float
    key: str
    in_use: int


def build_limit_views(use: LimitsInUse) -> tuple[LimitView, ...]:
    """Build the views of an Agent's limits. Of a limit with keys those are shown that use most of it."""
    book = build_book(use)
    views: list[LimitView] = []
    for policy in list_limits(use.row.limits):
        used: Counter[str] = Counter({rate.key: 0 for rate in use.rates if rate.name == policy.name})
        used.update({read_limit_keys(keys).get(policy.name, ""): 0 for keys, _ in use.running})
        keys = list(used) if policy.is_keyed else [""]
        counted = sorted(((book.count_used(policy, key), key) for key in keys), key=lambda one: (-one[0], one[1]))
        views += [
            LimitView(name=policy.name, kind=policy.kind, most=policy.most, per=policy.per, key=key, in_use=count)
            for count, key in counted[:KEYS_SHOWN_MAX]
            if count or not policy.is_keyed
        ]
    return tuple(views)
