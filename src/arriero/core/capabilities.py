"""Texts that give one right: to report how an attempt ended, or to complete a callback. Nobody else can make them.

Each says what it speaks for, with an HMAC-SHA256 of that under a secret of the store. It is not a secret of one program alone:
the one who has the text has the right. What it speaks for lets it count once, and bounds its time.
"""

import hashlib
import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode

import msgspec

from ..model import Instant

_VERSION = "1"
CHARACTERS_MAX = 4_096  # more than the longest ids take


class Capability(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The attempt that a capability speaks for.

    Args:
        complete_by: until when it is valid: the deadline of the attempt when it was made.
        latest: to which the attempt can be extended at most.
        app: whose gateway gave it out; empty: a gateway that did not say it yet did.
    """

    store_id: str
    agent: str
    task_id: str
    step_no: int
    attempt: int
    fence: int
    complete_by: Instant
    latest: Instant
    app: str = ""

    @property
    def identity(self) -> tuple[int, int]:
        """Step and fence, by which a process knows its attempts."""
        return self.step_no, self.fence


class CallbackToken(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The wait that a token of a callback may complete. It ends with the wait, whose row has its time.

    Args:
        submitted_at: when the task was. Another task has its number in a store that was restored from a backup.
        life: the task's ``past_count``: a task that was undone and began again has other waits of the same names.
        label: of the wait: ``receipt#1``.
    """

    task_no: int
    submitted_at: Instant
    life: int
    label: str


_encode = msgspec.json.Encoder().encode
_read_capability = msgspec.json.Decoder(Capability).decode
_read_callback = msgspec.json.Decoder(CallbackToken).decode


def seal_capability(capability: Capability, secret: bytes) -> str:
    """Write a capability as the text that a program is given."""
    return _seal(_encode(capability), secret, "capability")


def read_capability(text: str, secret: bytes, store_id: str) -> Capability | None:
    """Read the text of a capability. None: it was not made by this store. The signature is compared in constant time."""
    said = _open(text, secret, "capability")
    try:
        capability = None if said is None else _read_capability(said)
    except (msgspec.MsgspecError, ValueError):
        return None
    return capability if capability is not None and capability.store_id == store_id else None


def seal_callback(token: CallbackToken, secret: bytes, store_id: str) -> str:
    """Write the token of a callback as the text that a service is given. It is fit for a URL."""
    return _seal(_encode(token), secret, f"callback-{store_id}")


def read_callback(text: str, secret: bytes, store_id: str) -> CallbackToken | None:
    """Read the text of a token. None: it was not made by this store. The signature is compared in constant time."""
    said = _open(text, secret, f"callback-{store_id}")
    try:
        return None if said is None else _read_callback(said)
    except (msgspec.MsgspecError, ValueError):
        return None


def _seal(said: bytes, secret: bytes, purpose: str) -> str:
    text = urlsafe_b64encode(said).rstrip(b"=")
    return f"{_VERSION}.{text.decode()}.{_sign(text, secret, purpose)}"


def _open(text: str, secret: bytes, purpose: str) -> bytes | None:
    """Read a sealed text. None: it was not sealed under this secret for this purpose."""
    if len(text) > CHARACTERS_MAX or not text.isascii() or text.count(".") != 2:
        return None
    version, said, signature = text.split(".")
    if version != _VERSION or not hmac.compare_digest(signature, _sign(said.encode(), secret, purpose)):
        return None
    try:
        return urlsafe_b64decode(said + "=" * (-len(said) % 4))
    except ValueError:
        return None


def _sign(said: bytes, secret: bytes, purpose: str) -> str:
    signed = hmac.new(secret, f"arriero-{purpose}-{_VERSION}.".encode() + said, hashlib.sha256).digest()
    return urlsafe_b64encode(signed).rstrip(b"=").decode()
