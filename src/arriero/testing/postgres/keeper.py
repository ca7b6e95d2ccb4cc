"""Stands between a process and a program that it starts, so that the program never outlives the process.

Run by its path, with nothing but the standard library:

    python -I -S keeper.py PARENT WAY FOLDER [PROGRAM ARGUMENT...]

The keeper gives up root's rights for the program as WAY says, starts it and ends when the program and all its
descendants have ended, with the program's exit code. When PARENT dies first, whichever way, the keeper ends them all
and removes FOLDER ("" for none). Without a program it only waits for that.

Why a separate process, and not only the system's "signal me when my parent dies": that signal comes when the
*thread* dies that started the program, and nobody would remove the folder. Orphans come to the keeper (it is their
"subreaper"), so that its end is the end of everything that it started, also after the program itself was killed.
Linux only.
"""

import ctypes
import os
import shutil
import signal
import sys
import time
from collections import defaultdict
from pathlib import Path

LOOK_SECONDS = 0.2  # how often the keeper looks whether its parent is still there
GRACE_SECONDS = 3.0  # for PostgreSQL to end immediately and in order, so that it gives its shared memory back
SET_PARENT_DEATH_SIGNAL = 1  # prctl(2)
SET_CHILD_SUBREAPER = 36
NEW_USER_NAMESPACE = 0x10000000  # unshare(2)
CANNOT_START = 126
KILLED = 128  # and the signal's number: what a shell reports

libc = ctypes.CDLL(None, use_errno=True)


def descendants(pid: int) -> list[int]:
    """The processes that a process started, and those that they started; parents before their children."""
    children: defaultdict[int, list[int]] = defaultdict(list)
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            parent = parent_of(int(entry.name))
            if parent is not None:
                children[parent].append(int(entry.name))
    found = [pid]
    for one in found:
        found += children[one]
    return found[1:]


def parent_of(pid: int) -> int | None:
    """The parent of a process; None if it no longer exists or waits only to be noticed as dead."""
    try:
        told = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    state, parent = told.rpartition(")")[2].split()[:2]  # the name before it may hold anything, also brackets
    return None if state in "ZX" else int(parent)


def main(parent: int, way: str, folder: str, command: list[str]) -> int:
    """Keep one program; see above."""
    libc.prctl(SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    program = _start(command, way) if command else 0
    code = 0
    while os.getppid() == parent:
        signal.sigtimedwait({signal.SIGCHLD}, LOOK_SECONDS)
        ended, left = _reap()
        code = ended.get(program, code)
        if command and not left:
            return code
    _end_all(program)
    if folder:
        _remove(folder)
    return code


def _start(command: list[str], way: str) -> int:
    """Fork, give up rights, become the program. Returns its process id."""
    keeper = os.getpid()
    child = os.fork()
    if child:
        return child
    try:
        _give_up_root(way)
        # Last, for a change of rights would take it back. If a caller kills the keeper, the program ends immediately.
        libc.prctl(SET_PARENT_DEATH_SIGNAL, signal.SIGQUIT, 0, 0, 0)
        if os.getppid() != keeper:
            os._exit(CANNOT_START)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and the program would inherit that
            signal.signal(ignored, signal.SIG_DFL)
        os.execvp(command[0], command)
    except BaseException as error:
        os.write(2, f"{command[0]} could not be started ({way}): {error!r}\n".encode())
        os._exit(CANNOT_START)


def _give_up_root(way: str) -> None:
    if way == "direct":
        return
    import pwd

    nobody = pwd.getpwnam("nobody")
    if way == "nobody":
        os.setgroups([])
        os.setgid(nobody.pw_gid)
        os.setuid(nobody.pw_uid)
        return
    # In a user namespace of its own the process *is* nobody, with none of root's powers, while outside its files
    # stay the caller's. No user is added and nothing changes its owner.
    user, group = os.geteuid(), os.getegid()
    if libc.unshare(NEW_USER_NAMESPACE) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"no user namespace: {os.strerror(number)}")
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{nobody.pw_uid} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{nobody.pw_gid} {group} 1")


def _reap() -> tuple[dict[int, int], bool]:
    """Take note of who has ended: process id -> exit code, and whether anybody is left."""
    ended: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended, False
        if pid == 0:
            return ended, True
        code = os.waitstatus_to_exitcode(status)
        ended[pid] = code if code >= 0 else KILLED - code


def _end_all(program: int) -> None:
    """First in order, then by force, until nobody is left."""
    for pid in descendants(os.getpid()):
        _send(pid, signal.SIGCONT)  # a stopped process would not hear of it
    if program:
        _send(program, signal.SIGQUIT)
    grace_ends = time.monotonic() + GRACE_SECONDS
    while _reap()[1]:
        if time.monotonic() > grace_ends:
            for pid in descendants(os.getpid()):
                _send(pid, signal.SIGKILL)
        signal.sigtimedwait({signal.SIGCHLD}, 0.05)


def _send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def _remove(folder: str) -> None:
    """Others may still be writing into it while their keepers end them."""
    give_up_at = time.monotonic() + 3 * GRACE_SECONDS
    while Path(folder).exists() and time.monotonic() < give_up_at:
        shutil.rmtree(folder, ignore_errors=True)
        time.sleep(0.05)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4:]))
