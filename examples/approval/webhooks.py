"""Signatures of webhooks, as https://www.standardwebhooks.com describes them."""

import base64
import hashlib
import hmac
import time
from collections.abc import Mapping

SECONDS_MAX = 300  # an older message may be one that another program recorded


def sign(secret: str, message_id: str, body: bytes, sent_at: int) -> dict[str, str]:
    """Build the headers of a message."""
    key = base64.b64decode(secret.removeprefix("whsec_"))
    digest = hmac.new(key, f"{message_id}.{sent_at}.".encode() + body, hashlib.sha256).digest()
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(sent_at),
        "webhook-signature": "v1," + base64.b64encode(digest).decode(),
    }


def is_genuine(secret: str, headers: Mapping[str, str], body: bytes) -> bool:
    """Whether the holder of the secret sent the message, just now, and it is whole. ``headers``: by names in lower case."""
    message_id, sent_at = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    if not (sent_at.isascii() and sent_at.isdigit()) or abs(time.time() - int(sent_at)) > SECONDS_MAX:
        return False
    right = sign(secret, message_id, body, int(sent_at))["webhook-signature"].encode()
    given = headers.get("webhook-signature", "").encode()
    return any(hmac.compare_digest(right, one) for one in given.split())
