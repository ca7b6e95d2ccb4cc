"""Masking of credentials in the URLs that people see: ``mask_url`` for stores, ``mask_webhook`` for webhooks."""

import re

MASK = "***"
# Up to the last @ before a query: a password may hold what it should not. Then the same for one that holds even a "?".
# A file's path is left alone.
_USERS = (r"(?<=://)(?!/)[^?#]*@", r"(?<=://)[^/:?#@]*:[^@]*@")
# Also of the driver's other form, ``host=... password='...'``. A value of listen_url is another URL.
_SECRET_NAME = r"\w*(?:pass|secret|scram)\w*\s*="
_PASSWORD = re.compile(rf"""({_SECRET_NAME}\s*|\blisten_url=)('[^']*'|[^\s&#]+)""", re.IGNORECASE)
_HOLDS_PASSWORD = re.compile(rf"://[^@/\s]*:[^@]*@|{_SECRET_NAME}", re.IGNORECASE)
_WEBHOOK = re.compile(
    r"(?P<scheme>[a-z][a-z0-9+.-]*://)(?P<user>[^/?#\\\s]*@)?(?P<host>[^/?#@\\\s]+)(?P<rest>[^@]*)",
    re.IGNORECASE | re.DOTALL,
)


def mask_url(url: str) -> str:
    """The URL without users and passwords. It need not be a right one: what is refused is shown, too."""
    for user in _USERS:
        url = re.sub(user, f"{MASK}@", url)
    return _PASSWORD.sub(rf"\g<1>{MASK}", url)


def holds_password(text: str) -> bool:
    """Returns True if a text, perhaps a store's URL, may hold a password."""
    from urllib.parse import unquote  # it loads a lot, which only this pays for

    return _HOLDS_PASSWORD.search(text) is not None or _HOLDS_PASSWORD.search(unquote(text)) is not None


def mask_webhook(url: str) -> str:
    """The URL's host alone: path and query are the credential of many services. It need not be a right one."""
    found = _WEBHOOK.fullmatch(url)
    if found is None:  # where its host ends cannot be told
        return MASK if url else url
    user = f"{MASK}@" if found["user"] else ""
    rest = f"/{MASK}" if found["rest"].strip("/") else found["rest"]
    return f"{found['scheme']}{user}{found['host']}{rest}"
