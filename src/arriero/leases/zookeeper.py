"""Leases in ZooKeeper: a queue of ephemeral nodes with sequence numbers, as ZooKeeper's recipe for locks has it.

Below the node ``BASE/NAME`` each contender has a node ``MARK-NUMBER``. Its mark is a digest of the contender's name, so that a
contender finds its node again if the answer to its creation was lost. The node goes with the session that made it. The
contender with the smallest number may lead; each other one watches the node before its own, and nothing else. So a node that
goes wakes one contender.

The leader writes a note into ``BASE/NAME``: who leads, with which node, and in which term. The term is the creation zxid of
the leader's node. ZooKeeper numbers all its writes, so it only grows along the queue.

A renewal is a transaction that checks two things: our node is there, and the note is as we wrote it. A read would not do: the
server that answers it may have fallen behind the others. A transaction passes through the leader of ZooKeeper and a majority,
which also look whether our session lives. It changes nothing, so it wakes nobody. An operator who breaks the lease writes the
note, and with ``at_once`` deletes the node.
"""

import asyncio
import hashlib
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

import msgspec

from ..errors import describe_install

try:
    from kazoo.exceptions import NoNodeError
except ImportError as missing:
    raise ImportError(f"leases in ZooKeeper need kazoo: {describe_install('zookeeper')}") from missing

from ..errors import InvalidInput, LeaseRefused, LeaseUnavailable, NotAllowed
from ..payloads.codec import check_id
from ..runtime.shutdown import finish
from .contract import WATCH_SECONDS, DurationRange, Lease, LeaseConnection, LeaseGrant, LeaseSignal, LeaseView
from .zookeeper_session import ZooKeeperSession

BASE = "/arriero/leases"
SHORTEST_SECONDS = 2.0  # kazoo pings each third of it, less 0.4 s
LONGEST_SECONDS = 3600.0
LOOK_SECONDS = 10.0  # length of a session that only looks at leases
LIMIT_SHARE = 0.25  # of the duration, that one request may take: less than a third
LIMIT_SECONDS_MAX = 5.0  # of one request
TRIES = 3  # of what others' changes came across
QUEUED = re.compile(r"[0-9a-f]{32}-(\d{10})")


class ZooKeeperNote(msgspec.Struct, frozen=True, kw_only=True):
    """Content of the lease's node: the leader, or the last one.

    Args:
        node: of the leader.
        duration: of its session, in seconds.
        broken_by, broken_reason: an operator has broken the lease in this term.
    """

    holder: str = ""
    term: int = 0
    node: str = ""
    duration: float = 0.0
    broken_by: str = ""
    broken_reason: str = ""


class ZooKeeperState(msgspec.Struct, frozen=True):
    """A lease as its nodes say it.

    Args:
        version: of the note.
        is_held: the node of the leader that the note names is there.
        changed_at: when the note was written.
    """

    note: ZooKeeperNote
    version: int
    is_held: bool
    changed_at: datetime | None


class QueuePlace:
    """A contender's node in the queue.

    Args:
        session: that made the node.
        node: its name.
        term: its creation zxid.
    """

    def __init__(self, session: ZooKeeperSession, node: str, term: int) -> None:
        self.session = session
        self.node = node
        self.term = term
        self.note_version = -1  # of the note that says that it leads; below 0: it does not
        self.is_woken = True  # the node before it may be gone: look again
        self.look_again_at = 0.0  # on the loop's clock, in case a watch is lost
        self._losses = session.losses
        self._suspensions = session.suspensions
        self.is_watched = False  # its end, while it leads

    def is_lost(self) -> bool:
        """Returns True if the session ended, and the node with it."""
        return self.session.losses != self._losses

    def was_suspended(self) -> bool:
        """Returns True once for each interruption of the connection."""
        seen, self._suspensions = self._suspensions, self.session.suspensions
        return seen != self._suspensions


class ZooKeeperLease(Lease):
    """A lease in ZooKeeper 3.5 or later. Its duration is that of the session, which the server must give as it is asked for.

    Args:
        hosts: as ``host1:2181,host2:2181``.
        name: of the lease, 1 to 255 characters that a node's name may have.
        base: path below which the leases are.
        user, password: for the scheme digest. With them the nodes are open to this user alone.
        options: more of ``kazoo.client.KazooClient``, for TLS as an example.
    Raises: InvalidInput - hosts or base are not as they must be; LeaseRefused - the name is not.
    """

    provider = "zookeeper"
    durations = DurationRange(SHORTEST_SECONDS, LONGEST_SECONDS)

    def __init__(
        self,
        hosts: str | Sequence[str],
        name: str,
        *,
        base: str = BASE,
        user: str = "",
        password: str = "",
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.name = check_name(name)
        self.hosts = check_hosts(hosts if isinstance(hosts, str) else ",".join(hosts))
        self.base = check_base(base)
        self._credentials = (user, password)
        self._options = dict(options or {})

    async def connect(self) -> "ZooKeeperConnection":
        return ZooKeeperConnection(self, self._credentials, self._options)


def check_name(name: str) -> str:
    """Check the name of a lease in ZooKeeper: it is one part of a path. Raises LeaseRefused."""
    try:
        check_id(name, "name of a lease")
    except InvalidInput as error:
        raise LeaseRefused(str(error)) from error
    if "/" in name or not is_path_part(name):
        raise LeaseRefused(
            f"the name of a lease in ZooKeeper is {name!r}; it must hold no slash and no character that ZooKeeper refuses in"
            " a path, and must not be . or .."
        )
    return name


def is_path_part(part: str) -> bool:
    """Returns True if ZooKeeper takes it between two slashes. It looks at the units of UTF-16."""
    return part not in ("", ".", "..") and not any(
        ord(one) < 0x20 or 0x7F <= ord(one) <= 0x9F or 0xD800 <= ord(one) <= 0xF8FF or ord(one) >= 0xFFF0
        for one in part
    )


def check_hosts(hosts: str) -> str:
    """Check a list of hosts. Raises InvalidInput, whose text holds no password."""
    if "@" in hosts:
        raise InvalidInput(
            "the hosts of ZooKeeper hold credentials; give them as user and password, or in the variables"
            " ARRIERO_ZOOKEEPER_USER and ARRIERO_ZOOKEEPER_PASSWORD"
        )
    for host in hosts.split(","):
        try:
            parts = urlsplit(f"//{host.strip()}")
            is_fit = bool(parts.hostname) and not parts.path and (parts.port is None or parts.port > 0)
        except ValueError:
            is_fit = False
        if not is_fit:
            raise InvalidInput(f"the hosts of ZooKeeper are {hosts!r}; they must be as host1:2181,host2:2181")
    return hosts


def check_base(base: str) -> str:
    """Check the path below which leases are. Raises InvalidInput."""
    path = base.rstrip("/")
    if path and (not path.startswith("/") or not all(is_path_part(part) for part in path[1:].split("/"))):
        raise InvalidInput(f"the path of leases in ZooKeeper is {base!r}; it must be as /arriero/leases")
    return path


def open_lease_at(url: str, name: str, user: str, password: str) -> ZooKeeperLease:
    """Make a lease by a URL as ``zookeeper://HOST,HOST/BASE``. Raises InvalidInput, LeaseRefused."""
    hosts, _, base = url.partition("://")[2].partition("/")
    return ZooKeeperLease(hosts, name, base=f"/{base}" if base.strip("/") else BASE, user=user, password=password)


class ZooKeeperConnection(LeaseConnection):
    """See ``ZooKeeperLease``. The session is opened when its length is known: at the first request."""

    def __init__(self, lease: ZooKeeperLease, credentials: tuple[str, str], options: Mapping[str, Any]) -> None:
        self._lease = lease
        self._folder = f"{lease.base}/{lease.name}"
        self._credentials = credentials
        self._options = options
        self._session: ZooKeeperSession | None = None
        self._limit = LIMIT_SECONDS_MAX
        self._places: dict[str, QueuePlace] = {}  # by holder
        self._stirred = asyncio.Event()

    async def acquire(self, holder: str, duration: float | None) -> LeaseGrant | None:
        session = await self._open(duration)
        place = self._places.get(holder)
        if place is not None and (place.is_lost() or place.session is not session):
            place = None
        clock = asyncio.get_running_loop().time
        if place is not None and not place.is_woken and clock() < place.look_again_at:
            return None  # the node before it is watched
        for _ in range(TRIES):
            if place is None:
                place = self._places[holder] = await self._join(session, holder)
            queue = await self._load_queue(session)
            if place.node not in queue:  # an operator deleted it
                place = None
            elif (number := queue.index(place.node)) > 0:
                if await self._watch_node(session, queue[number - 1], place):
                    return None
            elif await self._note_leader(session, holder, place):
                return LeaseGrant(self._lease.name, holder, place.term, place.node)
            else:
                place = None
        self._stirred.set()  # the queue moves: look again immediately
        return None

    async def renew(self, grant: LeaseGrant, duration: float | None) -> bool:
        place = self._find_place(grant)
        if place is None or place.is_lost():
            return False
        session = await self._open(duration)
        if place.is_lost() or place.session is not session:
            return False

        def check(transaction: Any) -> None:
            transaction.check(self._path(place.node), -1)
            transaction.check(self._folder, place.note_version)

        return await session.commit(check, self._limit) is not None

    async def release(self, grant: LeaseGrant) -> None:
        if self._find_place(grant) is not None:
            del self._places[grant.holder]
        await self._delete(await self._open(None), grant.token)

    async def inspect(self) -> LeaseView:
        state = await self._load(await self._open(None))
        return build_zookeeper_view(self._lease.name, state)

    async def break_lease(self, actor: str, reason: str, *, at_once: bool = False) -> LeaseView:
        """See ``LeaseConnection``. Without ``at_once`` the lease stays taken until the holder's session ends."""
        session = await self._open(None)
        state = await self._load(session)
        if not state.is_held:
            raise NotAllowed(f"lease {self._lease.name!r}: nobody holds it; there is nothing to break")
        note = msgspec.structs.replace(state.note, broken_by=actor, broken_reason=reason)

        def change(transaction: Any) -> None:
            transaction.set_data(self._folder, msgspec.json.encode(note), state.version)
            if at_once:
                transaction.delete(self._path(note.node))

        if await session.commit(change, self._limit) is None:
            raise NotAllowed(
                f"lease {self._lease.name!r}: it changed while it was about to be broken; look at it again"
            )
        return build_zookeeper_view(self._lease.name, await self._load(session))

    async def wait_for_change(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stirred.wait()
        self._stirred.clear()

    async def wait_for_signal(self, grant: LeaseGrant) -> LeaseSignal:
        while True:
            self._stirred.clear()
            place = self._find_place(grant)
            if place is None or place.is_lost():
                return LeaseSignal.LOST
            if place.was_suspended():
                return LeaseSignal.SUSPENDED
            if not place.is_watched and place.session.is_connected:
                try:
                    if not await self._watch_lead(place):
                        return LeaseSignal.LOST
                except LeaseUnavailable:
                    place.is_watched = False
                    await asyncio.sleep(WATCH_SECONDS)
                continue
            await self._stirred.wait()

    async def withdraw(self, holder: str) -> None:
        self._places.pop(holder, None)
        if self._session is None:
            return
        await self._session.wait_until_connected(self._limit)
        for node in await self._load_queue(self._session):
            if node.startswith(build_mark(holder)):
                await self._delete(self._session, node)

    async def close(self) -> None:
        """Close the connection. The session ends, and what it holds is free immediately."""
        session, self._session = self._session, None
        self._places.clear()
        self._stirred.set()
        if session is not None:
            await finish(session.close())  # who closes may be cancelled meanwhile

    # --- the queue
    async def _open(self, duration: float | None) -> ZooKeeperSession:
        """The session, of this length if a duration is given. Raises LeaseUnavailable, LeaseRefused."""
        if duration is not None:
            self._limit = min(LIMIT_SECONDS_MAX, duration * LIMIT_SHARE)
            if self._session is not None and self._session.seconds != duration:
                await self.close()
        if self._session is None:
            self._session = ZooKeeperSession(
                self._lease.hosts, duration or LOOK_SECONDS, self._credentials, self._options, self._stirred.set
            )
        session = self._session
        await session.wait_until_connected(self._limit)
        if duration is not None:
            session.check_negotiated()
        return session

    def _path(self, node: str) -> str:
        return f"{self._folder}/{node}"

    def _find_place(self, grant: LeaseGrant) -> QueuePlace | None:
        place = self._places.get(grant.holder)
        return place if place is not None and (place.node, place.term) == (grant.token, grant.term) else None

    async def _join(self, session: ZooKeeperSession, holder: str) -> QueuePlace:
        """Find the contender's node again, or create one."""
        mark = build_mark(holder)
        session_id = session.session_id
        found: QueuePlace | None = None
        for node in await self._load_queue(session):
            if not node.startswith(mark):
                continue
            stat = await self._find_node(session, self._path(node))
            if stat is not None and stat.ephemeralOwner == session_id and found is None:
                found = QueuePlace(session, node, stat.czxid)
            else:  # an earlier session of ours left it behind, and would keep it until it ends
                await self._delete(session, node)
        if found is not None:
            return found
        path = await session.ask(
            lambda client: client.create_async(
                self._path(f"{mark}-"), holder.encode(), ephemeral=True, sequence=True, makepath=True
            ),
            self._limit,
        )
        stat = await self._find_node(session, path)
        if stat is None:
            raise LeaseUnavailable(f"lease {self._lease.name!r}: our node in the queue was deleted immediately")
        return QueuePlace(session, path.rpartition("/")[2], stat.czxid)

    async def _load_queue(self, session: ZooKeeperSession) -> list[str]:
        """The nodes of contenders, in their order.

        The server may have fallen behind, but it knows our own node, so it knows every node that came before it.
        """
        try:
            children = await session.ask(lambda client: client.get_children_async(self._folder), self._limit)
        except NoNodeError:
            return []
        numbered = [(int(match[1]), child) for child in children if (match := QUEUED.fullmatch(child))]
        return [child for _, child in sorted(numbered)]

    async def _watch_node(self, session: ZooKeeperSession, ahead: str, place: QueuePlace) -> bool:
        """Watch the node before ours. Returns False if it no longer exists."""

        def wake() -> None:
            place.is_woken = True
            self._stirred.set()

        watcher = session.call_on_event(wake)
        place.is_woken = False
        place.look_again_at = asyncio.get_running_loop().time() + session.seconds
        is_there = False
        try:
            await session.ask(lambda client: client.get_async(self._path(ahead), watch=watcher), self._limit)
            is_there = True
        except NoNodeError:
            pass
        finally:
            place.is_woken = place.is_woken or not is_there
        return is_there

    async def _note_leader(self, session: ZooKeeperSession, holder: str, place: QueuePlace) -> bool:
        """Write the note that this contender leads. Returns False if its node no longer exists."""
        note = ZooKeeperNote(holder=holder, term=place.term, node=place.node, duration=session.seconds)

        def change(transaction: Any) -> None:
            transaction.check(self._path(place.node), -1)
            transaction.set_data(self._folder, msgspec.json.encode(note))

        results = await session.commit(change, self._limit)
        if results is None:
            return False
        place.note_version = results[1].version
        return True

    async def _watch_lead(self, place: QueuePlace) -> bool:
        """Watch the end of our lead. Returns False if it has come: each change of the note is another's."""

        def wake() -> None:
            place.is_watched = False
            self._stirred.set()

        place.is_watched = True
        watcher = place.session.call_on_event(wake)
        for path, version in ((self._path(place.node), None), (self._folder, place.note_version)):
            stat = await self._find_node(place.session, path, watcher)
            if stat is None or version not in (None, stat.version):
                return False
        return True

    # --- requests
    async def _load(self, session: ZooKeeperSession) -> ZooKeeperState:
        await session.ask(lambda client: client.sync_async(self._folder), self._limit)
        try:
            data, stat = await session.ask(lambda client: client.get_async(self._folder), self._limit)
        except NoNodeError:
            return ZooKeeperState(ZooKeeperNote(), -1, False, None)
        try:
            note = msgspec.json.decode(data, type=ZooKeeperNote)
        except msgspec.DecodeError:  # no contender has led yet, or it was written by hand
            note = ZooKeeperNote()
        leader = None
        if note.node:
            leader = await self._find_node(session, self._path(note.node))
        is_held = leader is not None and leader.czxid == note.term
        return ZooKeeperState(note, stat.version, is_held, datetime.fromtimestamp(stat.mtime / 1000, UTC))

    async def _find_node(self, session: ZooKeeperSession, path: str, watcher: Any = None) -> Any:
        """The node's stat; None: there is no such node."""
        return await session.ask(lambda client: client.exists_async(path, watch=watcher), self._limit)

    async def _delete(self, session: ZooKeeperSession, node: str) -> None:
        with suppress(NoNodeError):
            await session.ask(lambda client: client.delete_async(self._path(node)), self._limit)


def build_mark(holder: str) -> str:
    """Build the part of a node's name that says whose it is."""
    return hashlib.sha256(holder.encode()).hexdigest()[:32]


def build_zookeeper_view(name: str, state: ZooKeeperState) -> LeaseView:
    """Build the view of a lease. ZooKeeper does not say when a session saw its last sign of life."""
    note = state.note
    return LeaseView(
        name=name,
        provider="zookeeper",
        holder=note.holder if state.is_held else "",
        term=note.term,
        duration=note.duration if state.is_held else None,
        since=state.changed_at if state.is_held and not note.broken_by else None,
        broken_by=note.broken_by,
        broken_reason=note.broken_reason,
    )
