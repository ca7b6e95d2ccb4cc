"""Reads ``arriero.toml``. Its settings start programs, so only this user's or root's is read."""

import os
import stat
from pathlib import Path
from shlex import quote
from typing import Any

from ..errors import InvalidInput

ROOT = 0


def read_trusted_file(file: Path) -> dict[str, Any]:
    """Read the tables of the file. Raises: InvalidInput - naming what to do."""
    import tomllib  # only who has a file pays for it

    try:
        if not file.is_file() and file.exists():
            raise InvalidInput(f"{file}: it is not a file; take it away, or put a file in its place")
        _refuse_untrusted(file)
        text = file.read_bytes().decode("utf-8-sig")  # editors on Windows begin a file with a byte order mark
        return tomllib.loads(text)
    except OSError as error:
        raise InvalidInput(f"{file}: it cannot be read: {error.strerror}; mend it, or take it away") from error
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{file}: it is not TOML: byte {error.start} is not UTF-8; save it as UTF-8") from error
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{file}: it is not TOML: {error}; correct it there") from error


def _refuse_untrusted(file: Path) -> None:
    """Refuse settings that another user gives, or could give: in the file, or by putting another one in its place.

    A link is followed, and the folders of both ends count. The system's permission bits decide; where it has no users,
    nothing is refused.
    Raises: InvalidInput - naming the file or folder, and what to do. OSError - it cannot be looked at.
    """
    if not hasattr(os, "geteuid"):  # Windows
        return
    real = Path(os.path.realpath(file))
    for path in dict.fromkeys((real, real.parent, file.parent)):
        found = path.stat()
        if why := _explain_distrust(found):
            what = (
                "it" if path == file else f"the folder {path}" if stat.S_ISDIR(found.st_mode) else f"its target {path}"
            )
            raise InvalidInput(
                f"{file}: {what} {why}, who would decide what is run here; if you trust it, {_remedy(why, path)}; if"
                f" not, put an {file.name} of your own into the folder you work in"
            )


def _explain_distrust(found: os.stat_result) -> str:
    """Return why another user decides its content; empty if none does."""
    if found.st_uid not in (ROOT, os.geteuid()):
        return f"belongs to {_name_of_user(found.st_uid)}"
    if stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX:
        return ""  # sticky, like /tmp: others may add files, but not replace ours, which is looked at itself
    if found.st_mode & stat.S_IWOTH:
        return "may be written by every user"
    if found.st_mode & stat.S_IWGRP and not _is_private(found.st_gid):
        return f"may be written by the group {_name_of_group(found.st_gid)}"
    return ""


def _remedy(why: str, path: Path) -> str:
    if why.startswith("belongs"):
        return f"run `chown {os.geteuid()} {quote(str(path))}`, or run as that user"
    return f"run `chmod go-w {quote(str(path))}`"


def _is_private(group: int) -> bool:
    """Returns True if a group has no member but root or this user, as where each user has a group of the same name."""
    if group == ROOT:
        return True
    import grp
    import pwd

    try:
        user, members = pwd.getpwuid(os.geteuid()), grp.getgrgid(group)
    except KeyError:  # a number without a name: nobody can know who is in it
        return False
    return (group, members.gr_name) == (user.pw_gid, user.pw_name) and set(members.gr_mem) <= {user.pw_name}


def _name_of_user(number: int) -> str:
    import pwd

    try:
        return f"the user {pwd.getpwuid(number).pw_name}"
    except KeyError:
        return f"the user {number}"


def _name_of_group(number: int) -> str:
    import grp

    try:
        return grp.getgrgid(number).gr_name
    except KeyError:
        return str(number)
