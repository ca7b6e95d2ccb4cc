"""Rules of leases on Azure Blob, as values: URLs, names, credentials, metadata, and what an answer means.

Nothing here loads the SDK or opens anything.
"""

import base64
import re
from collections.abc import Mapping
from enum import StrEnum
from math import ceil
from urllib.parse import quote, unquote, urlsplit

import msgspec

from ..errors import InvalidInput, LeaseRefused
from .contract import LeaseView

CONNECTION_STRING = "AZURE_STORAGE_CONNECTION_STRING"
ACCOUNT_KEY = "AZURE_STORAGE_KEY"
SAS_TOKEN = "AZURE_STORAGE_SAS_TOKEN"  # the name of the variable; the three are those of the Azure CLI
URL_SHAPE = "azure+https://ACCOUNT.blob.core.windows.net/CONTAINER"
INFINITE = -1  # the service's own word for a lease without an end
NAME_LENGTH_MAX = 1024
NAME_PARTS_MAX = 254
ACTOR_LENGTH_MAX = 100
REASON_LENGTH_MAX = 400  # metadata has 8 KB in all, and percent-encoding turns a character into up to 12 bytes
_CONTAINER = re.compile(r"[a-z0-9](?:-?[a-z0-9]){2,62}")

TERM = "arriero_term"
HOLDER = "arriero_holder"
DURATION = "arriero_duration"
BROKEN_BY = "arriero_broken_by"
BROKEN_REASON = "arriero_broken_reason"


class AzureAnswer(StrEnum):
    """Meaning of an unsuccessful answer for a lease."""

    TAKEN = "taken"  # another one holds the lease, or it is being broken
    LOST = "lost"  # this lease id does not hold the lease any longer
    CHANGED = "changed"  # a caller has written the blob since it was read
    NO_BLOB = "no blob"
    NO_CONTAINER = "no container"
    EXISTS = "exists"  # the blob or container to create is there
    DENIED = "denied"  # the credentials are wrong, or do not allow it
    UNAVAILABLE = "unavailable"  # it may work later
    REFUSED = "refused"  # it will never work like this


# 409 answers operations on the lease itself, 412 those on the blob that name a lease id or another condition.
MEANINGS: dict[tuple[int, str], AzureAnswer] = {
    (409, "LeaseAlreadyPresent"): AzureAnswer.TAKEN,
    (409, "LeaseIsBreakingAndCannotBeAcquired"): AzureAnswer.TAKEN,
    (409, "LeaseIsBreakingAndCannotBeChanged"): AzureAnswer.LOST,
    (409, "LeaseIsBrokenAndCannotBeRenewed"): AzureAnswer.LOST,
    (409, "LeaseAlreadyBroken"): AzureAnswer.LOST,
    (409, "LeaseIdMismatchWithLeaseOperation"): AzureAnswer.LOST,
    (409, "LeaseNotPresentWithLeaseOperation"): AzureAnswer.LOST,
    (409, "LeaseLost"): AzureAnswer.LOST,
    (412, "LeaseIdMissing"): AzureAnswer.TAKEN,
    (412, "LeaseIdMismatchWithBlobOperation"): AzureAnswer.LOST,
    (412, "LeaseNotPresentWithBlobOperation"): AzureAnswer.LOST,
    (412, "LeaseLost"): AzureAnswer.LOST,
    (412, "ConditionNotMet"): AzureAnswer.CHANGED,
    (404, "BlobNotFound"): AzureAnswer.NO_BLOB,
    (404, "ResourceNotFound"): AzureAnswer.NO_BLOB,
    (404, "ContainerNotFound"): AzureAnswer.NO_CONTAINER,
    (409, "BlobAlreadyExists"): AzureAnswer.EXISTS,
    (409, "ContainerAlreadyExists"): AzureAnswer.EXISTS,
    (409, "ContainerBeingDeleted"): AzureAnswer.UNAVAILABLE,
    (409, "AccountBeingCreated"): AzureAnswer.UNAVAILABLE,
    (409, "PublicAccessNotPermitted"): AzureAnswer.DENIED,
    (400, "InvalidAuthenticationInfo"): AzureAnswer.DENIED,
}


def judge_answer(status: int, code: str) -> AzureAnswer:
    """Returns what an answer that is not a success means.

    Args:
        status: of HTTP; 0: there was no answer.
        code: the service's error code; empty: it sent none.
    """
    known = MEANINGS.get((status, code))
    if known is not None:
        return known
    if status in (401, 403):
        return AzureAnswer.DENIED
    if status in (0, 408, 429) or status >= 500:
        return AzureAnswer.UNAVAILABLE
    return AzureAnswer.REFUSED


class AzureContainer(msgspec.Struct, frozen=True):
    """A container of blobs.

    Args:
        account_url: of the Blob service, without credentials.
        account: name of the storage account; empty: the host, your own domain, does not say.
    """

    account_url: str
    account: str
    container: str

    def __str__(self) -> str:
        return f"{self.account_url}/{self.container}"


def parse_container_url(url: str) -> AzureContainer:
    """Parse the URL of a container, with or without ``azure+``. Raises InvalidInput, which shows no part of a query or user."""
    scheme, separator, rest = url.removeprefix("azure+").partition("://")
    try:
        parts = urlsplit(f"{scheme}://{rest}")
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        raise InvalidInput(f"the URL of an Azure container is wrong: give {URL_SHAPE}") from error
    if parts.query or parts.fragment or parts.username is not None:
        raise InvalidInput(
            "the URL of an Azure container must hold no credentials, for it is shown in logs: put the part after '?' into"
            f" {SAS_TOKEN} and give {URL_SHAPE}"
        )
    names = [part for part in parts.path.split("/") if part]
    if not separator or scheme not in ("http", "https") or not host or len(names) not in (1, 2):
        raise InvalidInput(f"no container of Azure is at {url!r}: give {URL_SHAPE}")
    container = names[-1]
    if not _CONTAINER.fullmatch(container) or len(container) > 63:
        raise InvalidInput(
            f"Azure takes no container {container!r}: give 3 to 63 lower-case letters, digits and single hyphens between them"
        )
    place = f"[{host}]" if ":" in host else host
    account_url = f"{scheme}://{place}" + (f":{port}" if port else "")
    if len(names) == 2:  # an emulator has the account in the path
        return AzureContainer(f"{account_url}/{names[0]}", names[0], container)
    account, _, domain = host.partition(".")
    return AzureContainer(account_url, account if domain.startswith("blob.") else "", container)


def check_blob_name(name: str) -> str:
    """Check the name of a lease, which becomes that of a blob. Raises LeaseRefused."""
    parts = name.split("/") if isinstance(name, str) else []
    if not isinstance(name, str) or not name or len(name) > NAME_LENGTH_MAX or len(parts) > NAME_PARTS_MAX:
        raise LeaseRefused(
            f"Azure takes no lease of the name {name!r:.100}: give 1 to {NAME_LENGTH_MAX} characters, with at most"
            f" {NAME_PARTS_MAX} parts between slashes"
        )
    if not name.isprintable() or "\\" in name or any(not part or part.endswith(".") for part in parts):
        raise LeaseRefused(
            f"Azure takes no lease of the name {name!r:.100}: no backslash, no control character, and no part between slashes"
            " that is empty or ends with a dot"
        )
    return name


def read_credentials(environment: Mapping[str, str], container: AzureContainer) -> tuple[str, str]:
    """Read the account's key or a SAS from the environment. Returns (account, key) or ("", SAS).

    Raises: LeaseRefused - there is none, or it is another account's. No message shows a credential.
    """
    if text := environment.get(CONNECTION_STRING, ""):
        return _read_connection_string(text, container)
    if key := environment.get(ACCOUNT_KEY, ""):
        return check_key(key, container, ACCOUNT_KEY)
    if token := environment.get(SAS_TOKEN, ""):
        return "", token.lstrip("?")
    raise LeaseRefused(
        f"no credentials for {container}: set {CONNECTION_STRING}, {ACCOUNT_KEY} or {SAS_TOKEN}, or give"
        " AzureBlobLease(..., credential=DefaultAzureCredential) from azure.identity.aio"
    )


def check_key(key: str, container: AzureContainer, place: str) -> tuple[str, str]:
    """Check the key of an account. Returns (account, key). Raises LeaseRefused."""
    if not container.account:
        raise LeaseRefused(
            f"the URL {container} does not name the storage account of the key: set {CONNECTION_STRING}, which does"
        )
    try:
        base64.b64decode(key, validate=True)
    except ValueError:
        raise LeaseRefused(f"the account key in {place} is not complete: copy it again, it is base64") from None
    return container.account, key


def _read_connection_string(text: str, container: AzureContainer) -> tuple[str, str]:
    settings = dict(part.split("=", 1) for part in text.split(";") if "=" in part)
    account = settings.get("AccountName", "")
    if account and container.account and account != container.account:
        raise LeaseRefused(
            f"{CONNECTION_STRING} is that of the account {account!r}, but the URL names {container.account!r}: give those of one"
        )
    if key := settings.get("AccountKey", ""):
        named = msgspec.structs.replace(container, account=container.account or account)
        return check_key(key, named, CONNECTION_STRING)
    if token := settings.get("SharedAccessSignature", ""):
        return "", token.lstrip("?")
    raise LeaseRefused(
        f"{CONNECTION_STRING} holds no AccountKey and no SharedAccessSignature: copy it again from the portal"
    )


def hide_query(text: str) -> str:
    """The text without the queries of URLs, where a SAS may stand."""
    return re.sub(r"\?\S*", "?***", text)


def choose_duration(duration: float | None) -> int:
    """The service's duration: whole seconds, never shorter than what was asked for."""
    return INFINITE if duration is None else ceil(duration)


# --- metadata: texts of ASCII under names that are identifiers
def read_term(metadata: Mapping[str, str], place: str) -> int:
    """Read the last term; 0: there was none. Raises LeaseRefused - an operator has damaged it."""
    text = metadata.get(TERM, "0")
    if not (text.isascii() and text.isdigit()):
        raise LeaseRefused(
            f"the metadata {TERM} of {place} is {text!r:.50}, not a whole number: set it to one above every term that was used"
        )
    return int(text)


def write_grant(metadata: Mapping[str, str], holder: str, term: int, duration: float | None) -> dict[str, str]:
    """The metadata for a new holder. What others have written stays; what a break has left goes."""
    kept = {name: text for name, text in metadata.items() if name not in (BROKEN_BY, BROKEN_REASON)}
    length = "infinite" if duration is None else f"{duration:g}"
    return kept | {TERM: str(term), HOLDER: quote(holder), DURATION: length}


def write_break(metadata: Mapping[str, str], actor: str, reason: str) -> dict[str, str]:
    """The metadata after an operator has broken the lease."""
    return dict(metadata) | {
        BROKEN_BY: quote(actor[:REASON_LENGTH_MAX]),
        BROKEN_REASON: quote(reason)[: 3 * REASON_LENGTH_MAX],
    }


def build_lease_view(name: str, metadata: Mapping[str, str], state: str, place: str) -> LeaseView:
    """Build the view of a lease.

    Args:
        state: the service's: leased and breaking are held; available, expired and broken are not.
    """
    is_held = state in ("leased", "breaking")
    holder = unquote(metadata.get(HOLDER, "")) or "a contender that has written no term yet"
    length = metadata.get(DURATION, "")
    return LeaseView(
        name=name,
        provider="azure",
        holder=holder if is_held else "",
        term=read_term(metadata, place),
        duration=float(length) if length.replace(".", "", 1).isdigit() else None,
        broken_by="" if is_held else unquote(metadata.get(BROKEN_BY, "")),
        broken_reason="" if is_held else unquote(metadata.get(BROKEN_REASON, "")),
    )
