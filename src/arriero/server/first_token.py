"""First admin token of a store: it is in a file that only the user who starts the server can read."""

import os
import stat
from pathlib import Path

from ..client.tokens import draw_token, keep_token
from ..core.tokens import TokenParts, format_token, parse_token
from ..errors import InvalidInput
from ..store.state_store import StateStore
from ..tokens import Scope

NAME = "admin"
ACTOR = "arriero serve"
MODE = 0o600
READ_BYTES_MAX = 200
_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW


async def make_first_token(store: StateStore, path: Path) -> bool:
    """Make a token of admin, unless a token was ever made in the store, and write it to the file.

    The file comes first. If the process dies before the token is kept, the next start finds the file and keeps that token.
    Returns: False: there are tokens, and nothing was made.
    Raises: InvalidInput - the file is there and holds no token, can be read by others, or cannot be written; StoreError.
    """
    if await store.list_tokens():
        return False
    parts = draw_token()
    try:
        _write_exclusively(path, parts)
    except FileExistsError:
        parts = _read_own(path)
    except OSError as error:
        raise InvalidInput(
            f"the first token cannot be written to {path}: {error.strerror}; name another file with --token-file, or make a token"
            " with `arriero token create`"
        ) from error
    await keep_token(store, parts, name=NAME, scopes=(str(Scope.ADMIN),), by=ACTOR, expires_in=None)
    return True


def _write_exclusively(path: Path, parts: TokenParts) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FLAGS, MODE)
    with os.fdopen(descriptor, "w") as file:
        file.write(format_token(parts) + "\n")
        file.flush()
        os.fsync(descriptor)


def _read_own(path: Path) -> TokenParts:
    """Read the file of an earlier start. One that others could have put there would make them admins."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | _FLAGS)
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror}; take it away") from error
    try:
        found = os.fstat(descriptor)
        is_ours = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077
        text = os.read(descriptor, READ_BYTES_MAX) if is_ours else b""
    finally:
        os.close(descriptor)
    parts = parse_token(text.decode("ascii", "replace").strip())
    if parts is None:
        raise InvalidInput(
            f"{path} is there and holds no token that only you can read; take it away, or name another file with --token-file"
        )
    return parts
