"""URLs as people may see them: without what logs somebody in."""

import re

MASK = "***"
# Up to the last @ before a query: a password may hold what it should not. Then the same for one that holds even a "?".
# A file's path is left alone.
_USERS = (r"(?<=://)(?!/)[^?#]*@", r"(?<=://)[^/:?#@]*:[^@]*@")
# Also of the driver's other form, ``host=... password='...'``. A value of listen_url is another URL.
_PASSWORD = re.compile(r"""(\w*password\s*=\s*|\blisten_url=)('[^']*'|[^\s&#]+)""", re.IGNORECASE)


def masked(url: str) -> str:
    """The URL without users and passwords. It need not be a right one: what is refused is shown, too."""
    for user in _USERS:
        url = re.sub(user, f"{MASK}@", url)
    return _PASSWORD.sub(rf"\g<1>{MASK}", url)
