"""Callers whom a proxy in front of this server has authenticated and names in a header.

Whoever can connect from the proxy's address can be anybody, so nobody else is answered at all, and a header that was sent twice
is refused: a proxy that adds its own beside the caller's would let callers choose their name.
"""

from collections.abc import Iterable
from ipaddress import IPv4Network, IPv6Network, ip_network

from starlette.requests import Request

from ..errors import InvalidInput
from ..loopback import parse_address
from ..person_names import check_person
from .authentication import Authenticator
from .calls import Caller
from .gate_problems import build_credential_problem


class ProxyAuthenticator:
    """Takes the caller from a header, if a proxy sends it.

    Args:
        header: that names the caller, in lower case.
        addresses: networks of the proxies. A peer at a Unix socket has none: the rights of its file say who may connect.
        scopes: of each such caller.
        scopes_header: that names the scopes instead; empty: there is none.
        tokens: judges a request that carries a token; the proxy's header does not help a bad one.
    """

    def __init__(
        self,
        header: str,
        *,
        addresses: Iterable[str],
        scopes: Iterable[str],
        scopes_header: str,
        tokens: Authenticator,
    ) -> None:
        self._header = header
        self._networks: list[IPv4Network | IPv6Network] = [ip_network(address) for address in addresses]
        self._scopes = frozenset(scopes)
        self._scopes_header = scopes_header
        self._tokens = tokens

    async def authenticate(self, request: Request) -> Caller:
        if not self._is_proxy(request):
            raise build_credential_problem("this server answers its proxy alone", given=False)
        if "authorization" in request.headers:
            return await self._tokens.authenticate(request)
        name = _read_name(request.headers.getlist(self._header), self._header)
        scopes = self._scopes
        if self._scopes_header:
            given = request.headers.getlist(self._scopes_header)
            if len(given) > 1:
                raise build_credential_problem(f"the header {self._scopes_header} was sent twice")
            scopes = frozenset(" ".join(given).replace(",", " ").split())
        return Caller(name, scopes, f"proxy:{name}")  # no id of a token holds a colon

    def _is_proxy(self, request: Request) -> bool:
        if request.client is None or not request.client.host:
            return True
        address = parse_address(request.client.host)
        return address is not None and any(address in network for network in self._networks)


def _read_name(values: list[str], header: str) -> str:
    if len(values) != 1 or not values[0].strip():
        raise build_credential_problem(f"the proxy named no caller, or two, in the header {header}", given=bool(values))
    try:
        return check_person(values[0].strip().encode("latin-1").decode(), "name of the caller")
    except UnicodeDecodeError:
        raise build_credential_problem(f"the header {header} holds no name in UTF-8") from None
    except InvalidInput as error:
        raise build_credential_problem(f"the header {header} holds no fit name: {error}") from None
