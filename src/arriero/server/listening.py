"""Rule for the address of a server: only this machine may connect, unless callers from elsewhere must authenticate."""

import msgspec

from ..errors import InvalidInput
from ..loopback import is_loopback
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
