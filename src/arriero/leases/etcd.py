"""Leases in etcd, over its JSON gateway.

Three keys stand below ``PREFIX/NAME/``:

- ``holder``: the name of the holder. It is bound to a lease of etcd, and goes with it. Its create revision is the term: etcd
  counts one revision for all keys of a cluster, so it only grows.
- ``last-holder``: who got the lease last. The same transaction writes it, so its revision is the last term.
- ``broken``: who broke the lease, why, and in which term. The next holder deletes it.

A renewal asks twice: it keeps etcd's lease alive, then reads the keys. The first alone would not see that an operator broke the
lease. Both answers must come from one term of etcd's own leader: a former leader, which does not know that it is one, may
keep a lease alive that the present leader lets lapse.
"""

import asyncio
import math
import secrets
from collections.abc import Sequence
from contextlib import suppress
from ssl import SSLContext
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec

from ..errors import ArrieroError, InvalidInput, LeaseRefused, LeaseUnavailable, NotAllowed
from ..payloads.codec import check_id
from ..runtime.shutdown import finish
from .contract import WATCH_SECONDS, DurationRange, Lease, LeaseConnection, LeaseGrant, LeaseSignal, LeaseView
from .etcd_gateway import (
    FAILED_PRECONDITION,
    NOT_FOUND,
    EtcdGateway,
    EtcdHeader,
    EtcdKeys,
    EtcdLifetime,
    EtcdRefusal,
    EtcdStreamed,
    EtcdTransaction,
)

PREFIX = "/arriero/leases"
SHORTEST_SECONDS = 2.0  # what etcd gives at least with the election timeout that it has by default
LONGEST_SECONDS = 86_400.0
LIMIT_SHARE = 0.25  # of the duration, that one request may take on all endpoints together: less than a third
LIMIT_SECONDS_MAX = 5.0  # of one request
TRIES = 3  # of what another's change, or an election in etcd, came across
T = TypeVar("T")


class EtcdBreak(msgspec.Struct):
    """Value of the key ``broken``."""

    term: int
    by: str
    reason: str


class EtcdState(msgspec.Struct, frozen=True):
    """A lease as the keys say it, at one revision.

    Args:
        term: of the holder, or of the last one.
        lease: of etcd, to which the holder's key is bound.
        broken: of this term; None: nobody broke the lease.
    """

    header: EtcdHeader
    holder: str
    term: int
    lease: int
    broken: EtcdBreak | None

    def is_held_by(self, grant: LeaseGrant) -> bool:
        """Returns True if the grant stands, and nobody broke it."""
        mine = (grant.holder, grant.term, grant.token)
        return self.broken is None and (self.holder, self.term, str(self.lease)) == mine


class EtcdLease(Lease):
    """A lease in etcd 3.4 or later. A duration that is not a whole number of seconds is rounded up.

    Args:
        endpoints: URLs of the members, as ``http://host:2379``; one text may name several, with commas.
        name: of the lease, 1 to 255 characters without a slash.
        prefix: of the keys.
        user, password: where etcd asks for them.
        verify: as httpx2 takes it, for https: True, or a context with authorities or a certificate of the client's own.
    Raises: InvalidInput - an endpoint is not such a URL; LeaseRefused - the name is not a fit one.
    """

    provider = "etcd"
    durations = DurationRange(SHORTEST_SECONDS, LONGEST_SECONDS)

    def __init__(
        self,
        endpoints: str | Sequence[str],
        name: str,
        *,
        prefix: str = PREFIX,
        user: str = "",
        password: str = "",
        verify: SSLContext | bool = True,
    ) -> None:
        self.name = check_name(name)
        listed = endpoints.split(",") if isinstance(endpoints, str) else endpoints
        self.endpoints = [check_endpoint(one.strip()) for one in listed]
        self.prefix = prefix.rstrip("/")
        self._credentials = (user, password)
        self._verify = verify

    async def connect(self) -> "EtcdConnection":
        return EtcdConnection(self.name, self.prefix, EtcdGateway(self.endpoints, self._credentials, self._verify))


def check_name(name: str) -> str:
    """Check the name of a lease in etcd. Raises LeaseRefused."""
    try:
        check_id(name, "name of a lease")
    except InvalidInput as error:
        raise LeaseRefused(str(error)) from error
    if "/" in name:
        raise LeaseRefused(
            f"the name of a lease in etcd is {name!r}; it must hold no slash: folders go into the prefix"
        )
    return name


def check_endpoint(url: str) -> str:
    """Check the URL of a member of etcd. Raises InvalidInput, whose text holds no password."""
    if "@" in url:
        raise InvalidInput(
            "an endpoint of etcd holds credentials; give them as user and password, or in the variables"
            " ARRIERO_ETCD_USER and ARRIERO_ETCD_PASSWORD"
        )
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or 2379
    except ValueError:
        host = None
    if not host or parts.scheme not in ("http", "https") or parts.path.strip("/"):
        raise InvalidInput(f"an endpoint of etcd is {url!r}; it must be as http://host:2379")
    return f"{parts.scheme}://[{host}]:{port}" if ":" in host else f"{parts.scheme}://{host}:{port}"


def open_lease_at(url: str, name: str, user: str, password: str) -> EtcdLease:
    """Make a lease by a URL as ``etcd+http://HOST,HOST/PREFIX``. Raises InvalidInput, LeaseRefused."""
    scheme, _, rest = url.partition("+")[2].partition("://")
    hosts, _, prefix = rest.partition("/")
    endpoints = [f"{scheme}://{host}" for host in hosts.split(",")]
    return EtcdLease(
        endpoints, name, prefix=f"/{prefix}" if prefix.strip("/") else PREFIX, user=user, password=password
    )


class EtcdConnection(LeaseConnection):
    """See ``EtcdLease``."""

    def __init__(self, name: str, prefix: str, gateway: EtcdGateway) -> None:
        self._name = name
        self._folder = f"{prefix}/{name}/"
        self._gateway = gateway
        self._limit = LIMIT_SECONDS_MAX
        self._unused: set[int] = (
            set()
        )  # leases of etcd that we asked for, and that hold no key of ours as far as we know
        self._revision = 0  # of the last look
        self._changed = asyncio.Event()
        self._watching: asyncio.Task[None] | None = None

    async def acquire(self, holder: str, duration: float | None) -> LeaseGrant | None:
        assert duration is not None  # see ``durations``
        self._note_duration(duration)
        state = await self._load()
        if not state.holder:
            await self._revoke_unused()
            lease = await self._grant(duration)
            term = await self._put(holder, lease)
            if term:
                self._unused.discard(lease)
                return LeaseGrant(self._name, holder, term, str(lease))
            state = await self._load()
        if state.holder != holder:
            await self._revoke_unused()
            return None
        # The answer to our own transaction was lost.
        grant = LeaseGrant(self._name, holder, state.term, str(state.lease))
        if not await self.renew(grant, duration):
            return None
        self._unused.discard(state.lease)
        return grant

    async def renew(self, grant: LeaseGrant, duration: float | None) -> bool:
        assert duration is not None
        self._note_duration(duration)
        for _ in range(TRIES):
            kept = await self._keep_alive(int(grant.token))
            if kept.ttl <= 0:
                return False
            state = await self._load()
            if not state.is_held_by(grant):
                return False
            if state.header.raft_term == kept.header.raft_term:
                return True
        raise LeaseUnavailable("etcd elects leaders again and again; nobody knows which one kept the lease alive")

    async def release(self, grant: LeaseGrant) -> None:
        await self._change(grant.term, [{"request_delete_range": {"key": self._key("holder")}}])
        await self._revoke(int(grant.token))

    async def inspect(self) -> LeaseView:
        state = await self._load()
        if not state.holder:
            return build_etcd_view(self._name, state, EtcdLifetime())
        lifetime = await self._call("lease/timetolive", {"ID": str(state.lease)}, EtcdLifetime)
        return build_etcd_view(self._name, state, lifetime)

    async def break_lease(self, actor: str, reason: str, *, at_once: bool = False) -> LeaseView:
        state = await self._load()
        if not state.holder:
            raise NotAllowed(f"lease {self._name!r}: nobody holds it; there is nothing to break")
        note = msgspec.json.encode(EtcdBreak(state.term, actor, reason))
        changes: list[dict[str, Any]] = [{"request_put": {"key": self._key("broken"), "value": note}}]
        if at_once:
            changes.append({"request_delete_range": {"key": self._key("holder")}})
        if not await self._change(state.term, changes):
            raise NotAllowed(
                f"lease {self._name!r}: its holder changed while it was about to be broken; look at it again"
            )
        if at_once:
            with suppress(ArrieroError):  # etcd's lease has no key any longer, and lapses by itself
                await self._revoke(state.lease)
        return await self.inspect()

    async def wait_for_change(self, seconds: float) -> None:
        self._watch()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        self._changed.clear()

    async def wait_for_signal(self, grant: LeaseGrant) -> LeaseSignal:
        while True:
            self._watch()
            with suppress(TimeoutError):
                async with asyncio.timeout(WATCH_SECONDS):  # a watch that ended begins again
                    await self._changed.wait()
            if not self._changed.is_set():
                continue
            try:
                self._changed.clear()
                if not (await self._load()).is_held_by(grant):
                    return LeaseSignal.LOST
            except LeaseUnavailable:
                self._changed.set()
                await asyncio.sleep(WATCH_SECONDS)

    async def withdraw(self, holder: str) -> None:
        await self._revoke_unused()

    async def close(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
        await finish(self._gateway.close())  # who closes may be cancelled meanwhile

    # --- requests
    def _note_duration(self, duration: float) -> None:
        self._limit = min(LIMIT_SECONDS_MAX, duration * LIMIT_SHARE)

    def _key(self, name: str) -> bytes:
        return f"{self._folder}{name}".encode()

    async def _call(self, path: str, body: dict[str, Any], answer: type[T]) -> T:
        return await self._gateway.call(path, body, answer, self._limit)

    async def _load(self) -> EtcdState:
        end = self._folder[:-1] + "0"  # the character after the slash
        keys = await self._call("kv/range", {"key": self._folder.encode(), "range_end": end.encode()}, EtcdKeys)
        self._revision = keys.header.revision
        found = {key.key: key for key in keys.kvs}
        holder, last = found.get(self._key("holder")), found.get(self._key("last-holder"))
        term = holder.create_revision if holder else last.mod_revision if last else 0
        broken = None
        if (note := found.get(self._key("broken"))) is not None:
            with suppress(msgspec.DecodeError):  # written by hand
                broken = msgspec.json.decode(note.value, type=EtcdBreak)
        return EtcdState(
            header=keys.header,
            holder=holder.value.decode(errors="replace") if holder else "",
            term=term,
            lease=holder.lease if holder else 0,
            broken=broken if broken and broken.term == term else None,
        )

    async def _grant(self, duration: float) -> int:
        """Get a lease of etcd. We choose its number, so that one whose answer is lost can be revoked."""
        lease = secrets.randbelow(2**62) + 1
        seconds = math.ceil(duration)
        self._unused.add(lease)
        try:
            granted = await self._call("lease/grant", {"ID": str(lease), "TTL": str(seconds)}, EtcdLifetime)
        except EtcdRefusal as refusal:
            if (
                refusal.code != FAILED_PRECONDITION
            ):  # else the member that was asked first did it, and we did not hear it
                raise LeaseRefused(f"etcd grants no lease of {seconds} s: {refusal}") from None
            return lease
        if granted.ttl != seconds:
            await self._revoke_unused()
            raise LeaseRefused(f"etcd grants no lease of {seconds} s, but of {granted.ttl} s; choose such a duration")
        return lease

    async def _put(self, holder: str, lease: int) -> int:
        """Put the holder's key if there is none. Returns the term; 0: there is one."""
        changes: list[dict[str, Any]] = [
            {"request_put": {"key": self._key("holder"), "value": holder.encode(), "lease": str(lease)}},
            {"request_put": {"key": self._key("last-holder"), "value": holder.encode()}},
            {"request_delete_range": {"key": self._key("broken")}},
        ]
        return await self._change(0, changes)

    async def _change(self, term: int, changes: list[dict[str, Any]]) -> int:
        """Change keys if the holder's key has this create revision; 0: if there is none. Returns the revision; 0: it has not."""
        guard = {"key": self._key("holder"), "target": "CREATE", "result": "EQUAL", "create_revision": str(term)}
        try:
            answer = await self._call("kv/txn", {"compare": [guard], "success": changes}, EtcdTransaction)
        except EtcdRefusal as refusal:  # the lease that the key was to be bound to has lapsed
            raise LeaseUnavailable(f"etcd: {refusal}") from None
        return answer.header.revision if answer.succeeded else 0

    async def _keep_alive(self, lease: int) -> EtcdLifetime:
        return (await self._call("lease/keepalive", {"ID": str(lease)}, EtcdStreamed)).result

    async def _revoke(self, lease: int) -> None:
        try:
            await self._call("lease/revoke", {"ID": str(lease)}, EtcdKeys)
        except EtcdRefusal as refusal:
            if refusal.code != NOT_FOUND:
                raise LeaseUnavailable(f"etcd: {refusal}") from None

    async def _revoke_unused(self) -> None:
        for lease in list(self._unused):
            await self._revoke(lease)
            self._unused.discard(lease)

    # --- the watch
    def _watch(self) -> None:
        if self._watching is None or self._watching.done():
            self._watching = asyncio.get_running_loop().create_task(self._follow(self._revision + 1))

    async def _follow(self, revision: int) -> None:
        """Follow a watch to its end. After it there is a pause, so that one that ends immediately is not asked for in a loop."""
        watch = {
            "key": self._folder.encode(),
            "range_end": (self._folder[:-1] + "0").encode(),
            "start_revision": str(revision),
        }
        with suppress(LeaseUnavailable):
            await self._gateway.follow({"create_request": watch}, self._changed)
        await asyncio.sleep(WATCH_SECONDS)


def build_etcd_view(name: str, state: EtcdState, lifetime: EtcdLifetime) -> LeaseView:
    """Build the view of a lease. etcd does not say since when it is held."""
    broken = state.broken or EtcdBreak(0, "", "")
    is_held = bool(state.holder)
    return LeaseView(
        name=name,
        provider="etcd",
        holder=state.holder,
        term=state.term,
        duration=float(lifetime.granted_ttl) if is_held else None,
        seconds_left=float(max(0, lifetime.ttl)) if is_held else None,
        broken_by=broken.by,
        broken_reason=broken.reason,
    )
