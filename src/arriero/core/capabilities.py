"""Capabilities: who was given an attempt, and nobody else, may report how it ended.

A capability is a text that says which attempt it speaks for, with an HMAC-SHA256 of that under a secret of the store. It is not
a secret of the Agent's program alone: the one who has the text may report. The fence in it lets it count once, and its time
bounds it.
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


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Capability).decode


def seal_capability(capability: Capability, secret: bytes) -> str:
    """Write a capability as the text that a program is given."""
    said = urlsafe_b64encode(_encode(capability)).rstrip(b"=")
    return f"{_VERSION}.{said.decode()}.{_sign(said, secret)}"


def read_capability(text: str, secret: bytes, store_id: str) -> Capability | None:
    """Read the text of a capability. None: it was not made by this store. The signature is compared in constant time."""
    if len(text) > CHARACTERS_MAX or not text.isascii() or text.count(".") != 2:
        return None
    version, said, signature = text.split(".")
    if version != _VERSION or not hmac.compare_digest(signature, _sign(said.encode(), secret)):
        return None
    try:
        capability = _decode(urlsafe_b64decode(said + "=" * (-len(said) % 4)))
    except (msgspec.MsgspecError, ValueError):
        return None
    return capability if capability.store_id == store_id else None


def _sign(said: bytes, secret: bytes) -> str:
    signed = hmac.new(secret, f"arriero-capability-{_VERSION}.".encode() + said, hashlib.sha256).digest()
    return urlsafe_b64encode(signed).rstrip(b"=").decode()
