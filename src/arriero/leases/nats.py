"""Leases in a bucket of NATS KV: one key for each lease, whose record expires unless its holder renews it.

Every write names the revision of the key that it replaces, so of two that write one is refused. The term is the revision of
the record that took the lease. Revisions number all writes of the bucket: they grow over expiry, deletion and purging, and
begin again at 1 only in a bucket that was deleted and made again.

The server expires the record (a TTL for each message, from 2.11 on) by its own clock, at the earliest after the duration.
A record without a holder does not expire: it keeps the last term, and who has broken the lease.

If an answer is lost, nobody knows if a record was written. So the one who finds a record of its own continues with it: ``acquire``
adopts it and renews it, ``renew`` learns its revision, ``withdraw`` gives it back.
"""

import asyncio
import re
from contextlib import suppress
from math import ceil

import msgspec

from ..errors import LeaseRefused, LeaseUnavailable, NotAllowed
from .contract import DurationRange, Lease, LeaseConnection, LeaseGrant, LeaseView
from .nats_stream import NatsStream, parse_bucket_url

SHORTEST_SECONDS = 1.0  # what the server can count
LONGEST_SECONDS = 86_400.0
NAME_LENGTH_MAX = 255
ROUNDS_MAX = 5  # of a break against a holder that renews meanwhile
_NAME = re.compile(r"[-/_=a-zA-Z0-9]+(\.[-/_=a-zA-Z0-9]+)*")


class NatsRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """Value of a key. ``term`` 0: the term is the record's own revision."""

    holder: str = ""
    term: int = 0
    duration: float | None = None
    broken_by: str = ""
    broken_reason: str = ""


class NatsEntry(msgspec.Struct, frozen=True):
    """A key as it stands. Revision 0: it was never written, or it has expired."""

    revision: int = 0
    record: NatsRecord = NatsRecord()

    @property
    def term(self) -> int:
        return self.record.term or (self.revision if self.record.holder else 0)

    def is_of(self, holder: str, term: int | None = None) -> bool:
        """Returns True if the record is that holder's, in that term or in any, and nobody has broken it."""
        record = self.record
        return record.holder == holder and not record.broken_by and term in (None, self.term)


class NatsLease(Lease):
    """A lease in a bucket of NATS KV. A bucket that does not exist is made, in a file and on one server.

    Args:
        url: nats://HOST:4222/BUCKET; the credentials are in the environment.
        name: of the lease: a key.
    Raises: InvalidInput - the URL is wrong; LeaseRefused - the name is.
    """

    provider = "nats"
    durations = DurationRange(SHORTEST_SECONDS, LONGEST_SECONDS)

    def __init__(self, url: str, name: str) -> None:
        self._servers, self._bucket = parse_bucket_url(url)
        if not isinstance(name, str) or not _NAME.fullmatch(name) or len(name) > NAME_LENGTH_MAX:
            raise LeaseRefused(
                f"NATS takes no lease of the name {name!r:.100}: give 1 to {NAME_LENGTH_MAX} letters of ASCII, digits and"
                " characters of -/_=. with no dot at an end or beside another"
            )
        self.name = name

    async def connect(self) -> "NatsLeaseConnection":
        return NatsLeaseConnection(self._servers, self._bucket, self.name)


class NatsLeaseConnection(LeaseConnection):
    """See ``NatsLease``. No request goes out before the first method is called."""

    def __init__(self, servers: list[str], bucket: str, name: str) -> None:
        self._subject = f"$KV.{bucket}.{name}"
        self._stream = NatsStream(servers, bucket, self._subject)
        self._name = name
        self._place = f"{servers[0]}/{bucket}: {name}"
        self._revisions: dict[tuple[str, int], int] = {}  # by holder and term: of its last write

    async def acquire(self, holder: str, duration: float | None) -> LeaseGrant | None:
        entry = await self._read()
        if entry.record.holder:
            if not entry.is_of(holder):
                return None
            grant = LeaseGrant(self._name, holder, entry.term)  # its answer was lost: a part of its time is over
            return grant if await self.renew(grant, duration) else None
        revision = await self._write(entry.revision, NatsRecord(holder, 0, duration), duration)
        if revision is None:
            return None
        self._revisions[holder, revision] = revision
        return LeaseGrant(self._name, holder, revision)

    async def renew(self, grant: LeaseGrant, duration: float | None) -> bool:
        record = NatsRecord(grant.holder, grant.term, duration)
        return await self._replace(grant, record, duration)

    async def release(self, grant: LeaseGrant) -> None:
        await self._replace(grant, NatsRecord("", grant.term), None)
        self._revisions.pop((grant.holder, grant.term), None)

    async def withdraw(self, holder: str) -> None:
        entry = await self._read()
        if entry.is_of(holder):
            await self.release(LeaseGrant(self._name, holder, entry.term))

    async def inspect(self) -> LeaseView:
        entry = await self._read()
        record = entry.record
        return LeaseView(
            name=self._name,
            provider="nats",
            holder=record.holder,
            term=entry.term,
            duration=record.duration,
            broken_by=record.broken_by,
            broken_reason=record.broken_reason,
        )

    async def break_lease(self, actor: str, reason: str, *, at_once: bool = False) -> LeaseView:
        for _ in range(ROUNDS_MAX):
            entry = await self._read()
            if not entry.record.holder:
                raise NotAllowed(f"lease {self._name!r}: nobody holds it; there is nothing to break")
            holder = "" if at_once else entry.record.holder
            record = NatsRecord(holder, entry.term, entry.record.duration, actor, reason)
            # With notice: nobody knows how much time is left, so the lease stays taken for all of it once more.
            if await self._write(entry.revision, record, record.duration if holder else None) is not None:
                return await self.inspect()
        raise LeaseUnavailable(f"{self._place}: the lease changes faster than it can be broken; try again")

    async def wait_for_change(self, seconds: float) -> None:
        """A write wakes it immediately. The server reports to nobody that a record has expired, so look again after the time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stream.changed.wait()
        self._stream.changed.clear()

    async def close(self) -> None:
        await self._stream.close()

    # --- the key
    async def _replace(self, grant: LeaseGrant, record: NatsRecord, duration: float | None) -> bool:
        """Replace the record of a grant. False: it is another's, was broken, or has expired."""
        held_as = (grant.holder, grant.term)
        for _ in range(2):  # the second time after a write whose answer was lost
            revision = self._revisions.get(held_as)
            if revision is None:
                entry = await self._read()
                if not entry.is_of(*held_as):
                    return False
                revision = entry.revision
            written = await self._write(revision, record, duration)
            if written is not None:
                self._revisions[held_as] = written
                return True
            self._revisions.pop(held_as, None)
        return False

    async def _read(self) -> NatsEntry:
        message = await self._stream.read(self._subject)
        if message is None:
            return NatsEntry()
        if not message.data:  # an operator has deleted the key
            return NatsEntry(message.seq)
        try:
            return NatsEntry(message.seq, msgspec.json.decode(message.data, type=NatsRecord))
        except msgspec.DecodeError as error:
            raise LeaseRefused(
                f"{self._place} holds a value that is not a lease's: choose another name or bucket"
            ) from error

    async def _write(self, last: int, record: NatsRecord, duration: float | None) -> int | None:
        """Write the record if the key's revision is ``last``. Returns the new revision; None: it is not."""
        lifetime = None if duration is None else ceil(duration)
        return await self._stream.publish(self._subject, last, msgspec.json.encode(record), lifetime)
