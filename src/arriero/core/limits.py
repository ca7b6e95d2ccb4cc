"""Limits of Agents that all processes share: how much room is left, and which key comes next. Values in, values out.

A request of a limited Agent begins only in a Take, which locks the Agent's row of limits. What is in use is counted from
the attempts that run, as the store has them. So no slot can be lost: an attempt that ended, or was freed with its lost
process, is in use no more. Calls of a rate are kept as instants. Each is rounded up to a part of the window. So in no
window of ``per`` seconds more than ``most`` calls begin.

Fairness: the keys of one Agent take turns. A turn gives each key that has due requests and room one attempt. Within a key
priority and age decide (core.due). Keys wait in rows of their own (``limits.WaitingKeysRow``), in the order in which their
turn comes.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache

import msgspec

from ..events.base import payload_hash
from ..model import MICROSECONDS, Instant, StepKind, StepRow, StepState, later
from ..model.agents import (
    BEGUN_UNKNOWN,
    NO_LIMIT_KEYS,
    WITHOUT_KEYS,
    AgentLimitsRow,
    LimitPolicy,
    LimitsInUse,
    RateRow,
    WaitingKeysRow,
    read_limit_keys,
    read_limits,
)
from ..model.moves import NewStep

WINDOW_PARTS = 50  # of a rate's window: instants are rounded up to one, so at most 2 % of its room is lost
KEYLESS_SECONDS = (
    60.0  # between looks for requests without keys: every transaction that did not know the limits ends sooner
)
KEYLESS_AT_FIRST_SECONDS = 1.0  # between them until then: a look reads all that waits
EXPIRED_SECONDS = 60.0  # after its deadline, until which an attempt that was not recovered keeps its slot
ROOM_MAX = 1_000_000  # of an Agent without limits
CROWDED_SECONDS = 1.0  # between looks at keys that wait for a slot, if a Take finds more of them than it looks at

RateKey = tuple[str, str]  # name of the limit, key
decode_begun = msgspec.json.Decoder(tuple[tuple[Instant, int], ...]).decode


@lru_cache(maxsize=256)
def list_limits(text: str) -> tuple[LimitPolicy, ...]:
    """Return the limits of a row."""
    return read_limits(text)


@lru_cache(maxsize=4096)
def _find_keys(limits: str, limit_keys: str | None) -> tuple[tuple[LimitPolicy, str], ...]:
    try:
        keys = read_limit_keys(limit_keys)
    except msgspec.MsgspecError:  # of an attempt whose own row cannot be read: it counts where there are no keys
        keys = {}
    return tuple((one, keys.get(one.name, "") if one.is_keyed else "") for one in list_limits(limits))


def find_limits(rows: Iterable[AgentLimitsRow], app: str) -> AgentLimitsRow | None:
    """Find the limits of an Agent of an App among those of all Apps. None: it has none."""
    return next((row for row in rows if row.app == app and list_limits(row.limits)), None)


def is_limited(rows: Iterable[AgentLimitsRow], app: str) -> bool:
    """Returns True if an attempt of the App may begin only in a Take. ``app`` is empty where it was not said."""
    return any(row.app == app or not app for row in rows)


def waits_under_keys(step: StepRow) -> bool:
    """Returns True if a request waits under keys: then a row of the keys says when a Take looks at them."""
    is_request = step.state is StepState.PENDING and step.not_before is not None and step.kind is not StepKind.TIMER
    return is_request and step.limit_keys not in NO_LIMIT_KEYS


def list_waiting_keys(steps: Iterable[StepRow]) -> list[WaitingKeysRow]:
    """List the keys under which some requests wait, with the instant at which the first of each is due; in their order."""
    found: dict[tuple[str, str, str], Instant] = {}
    for step in steps:
        if waits_under_keys(step):
            assert step.limit_keys is not None
            assert step.not_before is not None
            key = (step.app, step.agent, step.limit_keys)
            found[key] = min(step.not_before, found.get(key, step.not_before))
    return [WaitingKeysRow(*key, look_at) for key, look_at in sorted(found.items())]


def name_limit_keys(new: NewStep, ask: Callable[[str], Iterable[AgentLimitsRow]], app: str) -> str | None:
    """Return the keys that a request is kept with.

    The code that asks may know of no limits: a request can go to another Agent, or the limits were declared since. Then it shares
    the room of the requests without keys. None: its Agent has no limits.

    Args:
        ask: for the limits of an Agent.
    """
    if new.limit_keys is not None or new.kind is StepKind.TIMER:
        return new.limit_keys
    return None if find_limits(ask(new.agent), app) is None else WITHOUT_KEYS


def find_first_deadline(now: Instant) -> Instant:
    """Find the deadline from which on an attempt is in use of its limits.

    An attempt that expired is recovered within seconds, and its slot is free then. If nobody can recover it, because its row
    cannot be read, its slot comes back after a minute: others must not wait until an operator has mended the row.
    """
    return later(now, -EXPIRED_SECONDS)


# --- rates
def count_begun(begun: Sequence[tuple[Instant, int]], per: float, now: Instant) -> int:
    """Count the calls that began in the last ``per`` seconds."""
    since = later(now, -per)
    return sum(count for at, count in begun if at > since)


def note_begun(begun: Sequence[tuple[Instant, int]], per: float, now: Instant) -> tuple[tuple[Instant, int], ...]:
    """Return the calls of a rate with one more, without those that no longer count."""
    part = max(round(per * MICROSECONDS) // WINDOW_PARTS, 1)
    at = Instant(-(-now // part) * part)
    since = later(now, -per)
    kept = tuple(one for one in begun if one[0] > since)
    if kept and kept[-1][0] == at:
        return (*kept[:-1], (at, kept[-1][1] + 1))
    return (*kept, (at, 1))


def compute_next_at(begun: Sequence[tuple[Instant, int]], most: int, per: float, now: Instant) -> Instant:
    """Compute when the next call of a rate may begin; ``now`` if it may begin immediately."""
    if most < 1:
        return later(now, per)  # see core.stand_ins: nobody knows how many may begin
    left, next_at = count_begun(begun, per, now), now
    for at, count in begun:
        if left < most:
            break
        if at > later(now, -per):
            left, next_at = left - count, later(at, per)
    return next_at


# --- the book of one Take
class LimitBook:
    """The limits of one Agent as one transaction finds and changes them.

    Args:
        row: locked by the transaction.
        running: running attempts by their keys; None: attempts without keys, which were kept before the limits.
        now: the store's clock.
    """

    def __init__(self, row: AgentLimitsRow, running: Iterable[tuple[str | None, int]], now: Instant) -> None:
        self.row = row
        self.now = now
        self.held_back = False  # a request, or the room that was asked for, waits for one of the limits
        self._next_look: Instant | None = None  # at keys that are not to be looked at yet
        self._policies = list_limits(row.limits)
        self._used: Counter[RateKey] = Counter()
        self._rates: dict[RateKey, tuple[tuple[Instant, int], ...]] = {}
        self._changed: set[RateKey] = set()
        for limit_keys, count in running:
            for policy, key in _find_keys(row.limits, limit_keys):
                if policy.kind == "concurrent":
                    self._used[policy.name, key] += count

    @property
    def is_keyed(self) -> bool:
        """True if one of the limits has keys: then these take turns."""
        return any(policy.is_keyed for policy in self._policies)

    def list_unknown_rates(self, limit_keys: Iterable[str | None]) -> list[str]:
        """List the keys of rate limits that are to be read before ``count_room`` is asked of these requests."""
        found = {
            key: None
            for keys in limit_keys
            for policy, key in _find_keys(self.row.limits, keys)
            if policy.kind == "rate" and (policy.name, key) not in self._rates
        }
        return list(found)

    def list_rate_names(self) -> list[str]:
        """List the names of the limits that are rates."""
        return [policy.name for policy in self._policies if policy.kind == "rate"]

    def keep_rates(self, keys: Iterable[str], rows: Iterable[RateRow]) -> None:
        """Keep the rates of these keys as they were read; a key without a row has begun nothing."""
        found = {(row.name, row.key): row for row in rows}
        for key in keys:
            for policy in self._policies:
                if policy.kind == "rate":
                    row = found.get((policy.name, key))
                    self._rates.setdefault(
                        (policy.name, key), () if row is None else _read_calls(row, policy, self.now)
                    )

    def count_used(self, policy: LimitPolicy, key: str) -> int:
        """Count what is in use of a limit: running attempts, or calls that began within the window."""
        if policy.kind == "concurrent":
            return self._used[policy.name, key]
        return count_begun(self._rates.get((policy.name, key), ()), policy.per, self.now)

    def count_room(self, limit_keys: str | None) -> int:
        """Count how many requests with these keys may begin now."""
        rooms = [policy.most - self.count_used(policy, key) for policy, key in _find_keys(self.row.limits, limit_keys)]
        return max(min(rooms, default=ROOM_MAX), 0)

    def count_common_room(self) -> int:
        """Count how many requests may begin now by the limits that have no keys."""
        rooms = [policy.most - self.count_used(policy, "") for policy in self._policies if not policy.is_keyed]
        return max(min(rooms, default=ROOM_MAX), 0)

    def begin(self, step: StepRow, now: Instant) -> StepRow:
        """Count an attempt that begins. Returns the step with the keys that it is counted under."""
        self.begin_call(step.limit_keys, now)
        for policy, key in _find_keys(self.row.limits, step.limit_keys):
            if policy.kind == "concurrent":
                self._used[policy.name, key] += 1
        return step if step.limit_keys is not None else msgspec.structs.replace(step, limit_keys=WITHOUT_KEYS)

    def begin_call(self, limit_keys: str | None, now: Instant) -> None:
        """Count a call for the rates alone."""
        for policy, key in _find_keys(self.row.limits, limit_keys):
            if policy.kind == "rate":
                self._rates[policy.name, key] = note_begun(self._rates.get((policy.name, key), ()), policy.per, now)
                self._changed.add((policy.name, key))

    def find_next_look(
        self, row: WaitingKeysRow, *, has_begun: bool, first_due: Instant | None, is_crowded: bool
    ) -> Instant | None:
        """Find when keys are looked at next that a Take has looked at.

        Those that a rate holds back are left alone until it has room. So a Take reads no more keys than it can serve, however
        many wait. Nobody knows when a slot becomes free. So keys that wait for one, or for a breaker, are looked at each time; if they
        are many, once a second.

        Args:
            has_begun: a request under them has begun: others come first now.
            first_due: of the requests under them, when the first is due; None: none waits.
            is_crowded: more keys wait to be looked at: those without room make way for them.
        Returns: None: nothing waits under them, so they are forgotten.
        """
        if (next_at := self.compute_next_at_of(row.keys)) is not None:
            return next_at
        if has_begun:
            return self.now
        if first_due is None:
            return None
        if first_due > self.now:
            return first_due
        return later(self.now, CROWDED_SECONDS) if is_crowded else row.look_at

    def note_next_look(self, at: Instant) -> None:
        """Note when keys are looked at next that are not to be looked at yet."""
        self.held_back = True
        self._next_look = at

    def note_turn(self, step: StepRow) -> None:
        """Note whose turn it was: the next one to be taken over is looked for behind these keys."""
        assert step.limit_keys is not None
        self.note_passed(step.limit_keys)

    def note_passed(self, keys: str) -> None:
        """Note behind which keys requests are looked for that may be taken over."""
        self.row = msgspec.structs.replace(self.row, last_keys=keys)

    def list_changed_rates(self) -> list[RateRow]:
        """List the rates to write."""
        per = {policy.name: policy.per for policy in self._policies}
        return [
            RateRow(
                app=self.row.app,
                agent=self.row.agent,
                name=name,
                key=key,
                begun=msgspec.json.encode(self._rates[name, key]).decode(),
                until=later(self._rates[name, key][-1][0], per[name]),
            )
            for name, key in sorted(self._changed)
        ]

    def compute_next_at(self) -> Instant | None:
        """Compute when a rate that is used up lets the next call through. None: no rate holds anything back."""
        instants = [
            compute_next_at(begun, policy.most, policy.per, self.now)
            for policy in self._policies
            if policy.kind == "rate"
            for (name, _), begun in self._rates.items()
            if name == policy.name and count_begun(begun, policy.per, self.now) >= policy.most
        ]
        return min([*instants, *([] if self._next_look is None else [self._next_look])], default=None)

    def compute_next_at_of(self, limit_keys: str | None) -> Instant | None:
        """Compute when all rates that are used up let a request with these keys through. None: no rate holds it back."""
        instants = [
            compute_next_at(self._rates.get((policy.name, key), ()), policy.most, policy.per, self.now)
            for policy, key, _ in self.list_full(limit_keys)
            if policy.kind == "rate"
        ]
        return max(instants, default=None)

    @property
    def has_rate(self) -> bool:
        """True if one of the limits is a rate."""
        return any(policy.kind == "rate" for policy in self._policies)

    def may_begin_call(self, limit_keys: str | None) -> bool:
        """Returns True if the rates let another call of a running attempt begin now."""
        return all(policy.kind != "rate" for policy, _, _ in self.list_full(limit_keys))

    def list_full(self, limit_keys: str | None) -> list[tuple[LimitPolicy, str, int]]:
        """List the limits that have no room for a request: the limit, the key, and how much is in use."""
        return [
            (policy, key, used)
            for policy, key in _find_keys(self.row.limits, limit_keys)
            if (used := self.count_used(policy, key)) >= policy.most
        ]

    def list_all_full(self) -> list[tuple[LimitPolicy, str, int]]:
        """List the limits that have no room, as in ``list_full``: of those with keys each key that is known."""
        known = sorted({*self._used, *self._rates})
        return [
            (policy, key, used)
            for policy in self._policies
            for name, key in known
            if name == policy.name and (used := self.count_used(policy, key)) >= policy.most
        ]


def _read_calls(row: RateRow, policy: LimitPolicy, now: Instant) -> tuple[tuple[Instant, int], ...]:
    """Read the calls of a rate. Of a row that cannot be read it is used up, at the latest until a window from now."""
    if row.begun == BEGUN_UNKNOWN:
        return ((min(later(row.until, -policy.per), now), policy.most),)
    return decode_begun(row.begun)


def build_book(use: LimitsInUse) -> LimitBook:
    """Build the book of limits that are looked at and not changed."""
    book = LimitBook(use.row, use.running, use.now)
    book.keep_rates({rate.key for rate in use.rates} | {""}, use.rates)
    return book


def declare_limits(
    known: AgentLimitsRow | None, *, app: str, agent: str, limits: str, process_no: int, now: Instant
) -> AgentLimitsRow | None:
    """Decide what a starting process makes of an Agent's limits. The newest declaration holds.

    Args:
        known: the row as it stands; None: there is none.
        limits: what the process declares, as JSON text.
    Returns: the row to write; None: nothing changes.
    """
    if known is None and not list_limits(limits):
        return None
    if known is not None and known.limits == limits:
        return None
    last_keys = "" if known is None else known.last_keys
    return AgentLimitsRow(
        app=app,
        agent=agent,
        limits=limits,
        process_no=process_no,
        declared_at=now,
        has_keyless=bool(list_limits(limits)),
        look_at=now,
        last_keys=last_keys,
    )


def note_look(row: AgentLimitsRow, now: Instant, *, has_keyless: bool) -> AgentLimitsRow:
    """Return the row after a look for requests and attempts without keys."""
    is_new = now < later(row.declared_at, KEYLESS_SECONDS)
    look_at = later(now, KEYLESS_AT_FIRST_SECONDS if is_new else KEYLESS_SECONDS)
    return msgspec.structs.replace(row, has_keyless=has_keyless, look_at=look_at)


def hash_keys(limits: str, limit_keys: str | None, *, rates_only: bool = False) -> Mapping[str, str]:
    """Return the limits that an attempt is counted under, by name, with a hash of its key; empty where there is no key.

    A history keeps the hashes. They distinguish keys and outlive a purge, which the keys of customers must not.
    """
    return {
        policy.name: (payload_hash(key) or "") if key else ""
        for policy, key in _find_keys(limits, limit_keys)
        if policy.kind == "rate" or not rates_only
    }
