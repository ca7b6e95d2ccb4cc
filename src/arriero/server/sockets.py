"""Opens the socket and the certificate of a server, by the rule for its address. Each refusal names the remedy."""

import errno
import os
import socket
import ssl
import stat

import msgspec

from ..errors import InvalidInput
from ..system.loopback import is_loopback
from .connection_limits import LimitedListener
from .request_rules import ANY_HOST, LOOPBACK_NAMES


class ListenOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Address that the settings of the same names ask for."""

    host: str = "127.0.0.1"
    port: int = 0
    unix_socket: str = ""
    tls_cert: str = ""
    tls_key: str = ""
    behind_proxy: str = ""
    hosts: tuple[str, ...] = ()


class ListenPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Address to listen on, decided from a ``ListenOptions``.

    Args:
        is_open: others than this machine can connect.
        needs_token: nothing is served before a token is there.
        may_make_token: if no token was ever made, the first one may be written to a file.
        hosts: names by which the server is known.
    """

    options: ListenOptions
    is_open: bool
    needs_token: bool
    may_make_token: bool
    hosts: frozenset[str]


def plan_listening(options: ListenOptions) -> ListenPlan:
    """Decide whether a server may listen there. Raises InvalidInput - others could connect, and nobody would know who they are."""
    is_open = not options.unix_socket and not is_loopback(options.host)
    has_tls = bool(options.tls_cert and options.tls_key)
    if is_open and not has_tls and not options.behind_proxy:
        raise InvalidInput(
            f"the address {options.host or 'of no name'!r} can be reached from other machines, and nothing protects it there: tokens"
            " would be readable on the way. Use --host 127.0.0.1, or give --tls-cert and --tls-key, or name the header of a proxy"
            " that authenticates with --behind-proxy HEADER"
        )
    named = frozenset(host.lower() for host in options.hosts)
    if not is_open:
        named |= frozenset(LOOPBACK_NAMES)
    return ListenPlan(
        options=options,
        is_open=is_open,
        needs_token=is_open and not options.behind_proxy,
        may_make_token=not is_open and not options.behind_proxy,
        hosts=named or frozenset({ANY_HOST}),
    )


def refuse_open_without_token(plan: ListenPlan, *, has_token: bool) -> None:
    """Refuse an open address while nobody could send a valid token. Raises InvalidInput."""
    if plan.needs_token and not has_token:
        raise InvalidInput(
            f"the address {plan.options.host!r} can be reached from other machines, and there is no valid token in the store: make"
            " one with `arriero token create NAME --scope SCOPE`, then start again"
        )


BACKLOG = 64  # connections that wait to be accepted; as many are accepted in one turn of the event loop
# Of answers that the caller has not read, in the system; it doubles the number. Without a limit it keeps megabytes for each connection,
# and a caller who does not read is noticed only when they are full.
SEND_BUFFER_BYTES = 128 * 1024
ANSWER_SECONDS_MAX = 1.0  # for an answer of another server at the same Unix socket
SOCKET_MODE = 0o600  # who may open it may send tokens; give others the rights on its folder and file


def load_certificate(options: ListenOptions) -> ssl.SSLContext | None:
    """Load certificate and key; None: there are none. Raises InvalidInput - they cannot be read, or do not fit each other."""
    if not options.tls_cert:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(options.tls_cert, options.tls_key, password=_refuse_password)
    except _EncryptedKey:
        raise InvalidInput(
            f"the key {options.tls_key} is encrypted, and nobody is there to type its password"
        ) from None
    except ssl.SSLError as error:
        raise InvalidInput(
            f"the certificate {options.tls_cert} and the key {options.tls_key} cannot be used: {error.reason or 'they are not PEM'};"
            " give the chain and the key that belong together"
        ) from error
    except OSError as error:
        path = next(
            (path for path in (options.tls_cert, options.tls_key) if not os.access(path, os.R_OK)), options.tls_cert
        )
        raise InvalidInput(f"the file {path} cannot be read: {error.strerror}") from error
    return context


class _EncryptedKey(Exception):
    """A password would be needed."""


def _refuse_password() -> str:
    raise _EncryptedKey


def open_socket(plan: ListenPlan) -> LimitedListener:
    """Open the socket, and listen. Raises InvalidInput - it is in use, or there is no such address."""
    options = plan.options
    if options.unix_socket:
        return _open_unix_socket(options.unix_socket)
    try:
        found = socket.getaddrinfo(options.host, options.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise InvalidInput(f"there is no address {options.host!r} here: {error.strerror}") from error
    family, _, _, _, address = found[0]
    if not plan.is_open and not is_loopback(str(address[0])):
        raise InvalidInput(f"{options.host!r} stands for {address[0]} here, which others can reach; use 127.0.0.1")
    # Named as TCP, so that asyncio switches Nagle's algorithm off: an answer is written in two parts, and without that the second
    # one waits 40 ms for the caller's acknowledgement of the first.
    listener = LimitedListener(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise _refuse_address(f"{options.host}:{options.port}", error) from error
    return listener


def _refuse_address(where: str, error: OSError) -> InvalidInput:
    if error.errno == errno.EADDRINUSE:
        return InvalidInput(
            f"{where} is in use by another program; choose another one with --port, or end that program"
        )
    if error.errno == errno.EACCES:
        return InvalidInput(f"{where} may not be used by this user; choose a port above 1023 with --port")
    return InvalidInput(f"nothing can listen on {where}: {error.strerror}")


def _open_unix_socket(path: str) -> LimitedListener:
    _remove_stale_socket(path)
    listener = LimitedListener(socket.AF_UNIX)
    before = os.umask(0o777 & ~SOCKET_MODE)  # nobody may connect between bind and a change of rights
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        listener.bind(path)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise InvalidInput(f"nothing can listen on the socket {path}: {error.strerror or error}") from error
    finally:
        os.umask(before)
    return listener


def _remove_stale_socket(path: str) -> None:
    """Remove what a server left behind that was killed. Raises InvalidInput - another process listens there, or it is not a socket."""
    try:
        found = os.lstat(path)
    except OSError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        raise InvalidInput(
            f"{path} is there and is not a socket; take it away, or name another path with --unix-socket"
        )
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.settimeout(ANSWER_SECONDS_MAX)
        try:
            asking.connect(path)
        except (ConnectionRefusedError, FileNotFoundError):
            os.unlink(path)  # noqa: PTH108  # as the rest of this module
            return
        except OSError:
            pass
    raise InvalidInput(f"the socket {path} is in use by another program; name another path with --unix-socket")


def describe_address(plan: ListenPlan, listener: socket.socket) -> str:
    """The address for operators, with the port that was chosen."""
    if plan.options.unix_socket:
        return f"unix:{plan.options.unix_socket}"
    host, port = listener.getsockname()[:2]
    scheme = "https" if plan.options.tls_cert else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
