"""Leases on Azure Blob: the lease of a blob that is named after it, and the term in the blob's metadata.

**The grant.** A contender takes the blob's lease, reads the metadata, and writes the term after the last one with its lease
id. Only then it has a grant. The service refuses such a write once that lease id does not hold the lease any longer, and a
write without a lease id while a caller holds it. So between the reading and the writing nobody else can have written a term.

If the contender dies,

- before the lease is taken: nothing has happened;
- after the lease was taken, before the term is written: no grant was given. The lease lapses, and the next one reads the
  old term. A lease without an end must be broken by an operator. Meanwhile ``inspect`` names the earlier holder;
- after the term is written, before anybody knows: that term was never used. The next one gets a larger term;
- while the write is in transit: the service refuses it if it comes after the lease has lapsed or is another's.

If an answer is lost, the same contender asks again with the same lease id. The service then grants again what this id holds.
So a lost answer costs a term and no waiting. ``withdraw`` gives back a lease of which nobody knows if it was granted.

The client is the asynchronous one, because a renewal that is cut off must end immediately and a thread cannot be cancelled.
"""

import asyncio
import os
import uuid
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar, cast

import msgspec

from ..errors import (
    ArrieroError,
    InvalidInput,
    LeaseAccessDenied,
    LeaseRefused,
    LeaseUnavailable,
    NotAllowed,
    describe_install,
)
from .azure_rules import (
    ACCOUNT_KEY,
    CONNECTION_STRING,
    SAS_TOKEN,
    AzureAnswer,
    build_lease_view,
    check_blob_name,
    check_key,
    choose_duration,
    hide_query,
    judge_answer,
    parse_container_url,
    read_credentials,
    read_term,
    write_break,
    write_grant,
)
from .contract import DurationRange, Lease, LeaseConnection, LeaseGrant, LeaseView

try:
    import aiohttp as _transport  # noqa: F401  # the SDK loads it when it opens a connection
    from azure.core import MatchConditions
    from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential
    from azure.core.exceptions import AzureError, ClientAuthenticationError, HttpResponseError
    from azure.storage.blob.aio import BlobLeaseClient, BlobServiceClient
except ImportError as missing:
    raise ImportError(
        f"leases on Azure Blob need azure-storage-blob and aiohttp: {describe_install('azure')}"
    ) from missing

T = TypeVar("T")
Credential = str | Callable[[], Any]
SHORTEST_SECONDS = 15.0  # the service's own limits
LONGEST_SECONDS = 60.0
REQUEST_SECONDS_MAX = 5.0  # a third of the shortest lease, as a renewal may take
CREATION_ROUNDS = 3  # the blob may be missing, then its container


class AzureBlobLease(Lease):
    """A lease on the blob ``name`` in a container of Azure Blob. Container and blob are made when a caller asks for the lease.

    Args:
        url: of the container: https://ACCOUNT.blob.core.windows.net/CONTAINER, with or without ``azure+``.
        name: of the lease: of a blob.
        credential: the account's key or a SAS; or a function that makes a credential of ``azure.identity.aio`` for each
            connection, which closes it. None: the key or the SAS is in the environment.
    Raises: InvalidInput - the URL is wrong; LeaseRefused - the name is, or there are no credentials.
    """

    provider = "azure"
    durations = DurationRange(SHORTEST_SECONDS, LONGEST_SECONDS, may_be_infinite=True)

    def __init__(self, url: str, name: str, *, credential: Credential | None = None) -> None:
        self._container = parse_container_url(url)
        self.name = check_blob_name(name)
        self.url = str(self._container)
        self._make_credential = self._choose_credential(credential)

    def _choose_credential(self, credential: Credential | None) -> Callable[[], Any]:
        if credential is None:
            account, secret = read_credentials(os.environ, self._container)
        elif callable(credential):
            return credential
        elif not isinstance(credential, str):
            raise InvalidInput(
                f"a credential of the type {type(credential).__name__} cannot be used on two event loops: give the account's"
                " key, a SAS, or a function that makes a credential"
            )
        elif "sig=" in credential:
            account, secret = "", credential.lstrip("?")
        else:
            account, secret = check_key(credential, self._container, "credential=")
        if account:
            return lambda: AzureNamedKeyCredential(account, secret)
        return lambda: AzureSasCredential(secret)

    async def connect(self) -> "AzureBlobConnection":
        credential = self._make_credential()
        try:
            service = BlobServiceClient(
                self._container.account_url,
                credential=credential,
                retry_total=0,  # the keeper tries again; the SDK would continue for minutes
                connection_timeout=REQUEST_SECONDS_MAX,
                read_timeout=REQUEST_SECONDS_MAX,
            )
        except (TypeError, ValueError) as error:  # such as a token over http
            raise LeaseAccessDenied(f"{self.url}: Azure's client does not take the credential: {error}") from error
        return AzureBlobConnection(service, credential, self._container.container, self.name, f"{self.url}/{self.name}")


class AzureBlobConnection(LeaseConnection):
    """See ``AzureBlobLease``. No request goes out before the first method is called."""

    def __init__(self, service: "BlobServiceClient", credential: Any, container: str, name: str, place: str) -> None:
        self._service = service
        self._credential = credential
        self._container = service.get_container_client(container)
        self._blob = self._container.get_blob_client(name)
        self._name = name
        self._place = place
        self._asked: dict[str, str] = {}  # by holder: the lease id of a request that has not become a grant

    async def acquire(self, holder: str, duration: float | None) -> LeaseGrant | None:
        lease_id = self._asked.setdefault(holder, str(uuid.uuid4()))
        if not await self._take(lease_id, duration):
            return None
        term = await self._write_term(lease_id, holder, duration)
        if term is None:
            return None
        del self._asked[holder]
        return LeaseGrant(self._name, holder, term, lease_id)

    async def renew(self, grant: LeaseGrant, duration: float | None) -> bool:
        # The service also renews a lease that has lapsed, as long as nobody has had it or has written the blob since.
        answer = await self._ask(self._lease(grant.token).renew(), AzureAnswer.LOST, AzureAnswer.NO_BLOB)
        return not isinstance(answer, AzureAnswer)

    async def release(self, grant: LeaseGrant) -> None:
        await self._release(grant.token)

    async def withdraw(self, holder: str) -> None:
        lease_id = self._asked.pop(holder, None)
        if lease_id is not None:
            await self._release(lease_id)

    async def inspect(self) -> LeaseView:
        properties = await self._read()
        if properties is None:
            return LeaseView(name=self._name, provider="azure")
        view = build_lease_view(self._name, properties.metadata or {}, str(properties.lease.state), self._place)
        # Nothing but a grant and a break writes the blob, so its time, by the service's clock, is that of the grant.
        return msgspec.structs.replace(view, since=properties.last_modified if view.holder else None)

    async def break_lease(self, actor: str, reason: str, *, at_once: bool = False) -> LeaseView:
        before = await self._read()
        if before is None or before.lease.state not in ("leased", "breaking"):
            raise self._build_nobody_error()
        # The service takes the time that is left if that is shorter. A lease without an end stays taken for a minute, within
        # which its holder tries to renew it.
        period = 0 if at_once else int(LONGEST_SECONDS)
        answer = await self._ask(
            self._lease().break_lease(lease_break_period=period), AzureAnswer.LOST, AzureAnswer.NO_BLOB
        )
        if isinstance(answer, AzureAnswer):
            raise self._build_nobody_error()
        if at_once:
            # Nobody may write without a lease id while a caller holds the lease: its next holder, if there is one already,
            # and a holder whose lease is only being broken. Then who broke it is not kept.
            metadata = write_break(before.metadata or {}, actor, reason)
            expected = (AzureAnswer.TAKEN, AzureAnswer.LOST, AzureAnswer.CHANGED, AzureAnswer.NO_BLOB)
            await self._ask(self._write(metadata, before.etag), *expected)
            return await self.inspect()
        return msgspec.structs.replace(await self.inspect(), broken_by=actor, broken_reason=reason)

    async def close(self) -> None:
        for resource in (self._service, self._credential):
            with suppress(Exception):  # there is nothing left to do with it
                if hasattr(resource, "close"):
                    await resource.close()

    # --- requests
    async def _take(self, lease_id: str, duration: float | None) -> bool:
        """Take the blob's lease; make the blob first if need be. Returns False if another one holds it."""
        missing = (AzureAnswer.NO_BLOB, AzureAnswer.NO_CONTAINER)
        for _ in range(CREATION_ROUNDS):
            request = self._lease(lease_id).acquire(lease_duration=choose_duration(duration))
            answer = await self._ask(request, AzureAnswer.TAKEN, *missing)
            if not isinstance(answer, AzureAnswer):
                return True
            if answer is AzureAnswer.TAKEN:
                return False
            if answer is AzureAnswer.NO_CONTAINER:
                await self._ask(self._container.create_container(), AzureAnswer.EXISTS)
            else:  # with the condition that there is none
                await self._ask(
                    self._blob.upload_blob(b"", overwrite=False), AzureAnswer.EXISTS, AzureAnswer.TAKEN, *missing
                )
        raise LeaseUnavailable(f"{self._place}: the blob is deleted as soon as it is made; find out by which program")

    async def _write_term(self, lease_id: str, holder: str, duration: float | None) -> int | None:
        """Write the next term under a lease that was taken. None: it is another's by now, or the blob was written meanwhile."""
        properties = await self._read()
        if properties is None:
            return None
        metadata = properties.metadata or {}
        term = read_term(metadata, self._place) + 1
        # The lease id alone does not do: a write of this contender that was late would bring an earlier term back.
        request = self._write(write_grant(metadata, holder, term, duration), properties.etag, lease_id)
        answer = await self._ask(request, AzureAnswer.LOST, AzureAnswer.CHANGED, AzureAnswer.NO_BLOB)
        return None if isinstance(answer, AzureAnswer) else term

    async def _release(self, lease_id: str) -> None:
        await self._ask(
            self._lease(lease_id).release(), AzureAnswer.LOST, AzureAnswer.NO_BLOB, AzureAnswer.NO_CONTAINER
        )

    async def _read(self) -> Any:
        """The blob's properties; None: there is no blob."""
        missing = (AzureAnswer.NO_BLOB, AzureAnswer.NO_CONTAINER)
        answer = await self._ask(cast("Awaitable[Any]", self._blob.get_blob_properties()), *missing)
        return None if isinstance(answer, AzureAnswer) else answer

    async def _write(self, metadata: dict[str, str], etag: str, lease_id: str | None = None) -> None:
        """Write the metadata if the blob is as it was read."""
        condition = MatchConditions.IfNotModified
        await self._blob.set_blob_metadata(metadata, etag=etag, match_condition=condition, lease=lease_id)

    def _lease(self, lease_id: str | None = None) -> "BlobLeaseClient":
        return BlobLeaseClient(self._blob, lease_id=lease_id)

    async def _ask(self, request: Awaitable[T], *expected: AzureAnswer) -> T | AzureAnswer:
        """Make a request. Returns what it gives, or one of the answers that the caller expects.

        The SDK's own messages are not shown: they may say parts of what was signed.
        """
        try:
            async with asyncio.timeout(REQUEST_SECONDS_MAX):
                return await request
        except ClientAuthenticationError as error:
            status, code = _read_answer(error)
            raise self._build_error(AzureAnswer.DENIED, status or 401, code) from None
        except HttpResponseError as error:
            status, code = _read_answer(error)
            answer = judge_answer(status, code)
            if answer in expected:
                return answer
            raise self._build_error(answer, status, code) from None
        except AzureError as error:
            raise LeaseUnavailable(f"{self._place}: {hide_query(str(error)) or type(error).__name__}") from None
        except TimeoutError:
            raise LeaseUnavailable(f"{self._place}: no answer within {REQUEST_SECONDS_MAX:g} s") from None

    def _build_error(self, answer: AzureAnswer, status: int, code: str) -> ArrieroError:
        said = f"{self._place}: Azure answered {status} {code}".rstrip()
        if answer is AzureAnswer.DENIED:
            return LeaseAccessDenied(
                f"{said}: check that the credentials ({CONNECTION_STRING}, {ACCOUNT_KEY}, {SAS_TOKEN} or credential=) are those"
                " of this account, have not expired, and may read, write and create blobs; else create the container yourself"
            )
        if answer is AzureAnswer.REFUSED:
            return LeaseRefused(
                f"{said}: it does not take this name, container or account for leases; choose another one"
            )
        return LeaseUnavailable(f"{said}: try again")

    def _build_nobody_error(self) -> NotAllowed:
        return NotAllowed(f"lease {self._name!r}: nobody holds it; there is nothing to break")


def _read_answer(error: "HttpResponseError") -> tuple[int, str]:
    """Status and error code; 0 and empty if there was no answer."""
    response = error.response
    headers = getattr(response, "headers", None) or {}
    return error.status_code or 0, str(headers.get("x-ms-error-code") or "")
