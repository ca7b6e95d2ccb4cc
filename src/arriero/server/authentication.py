"""Authentication of a request, behind ``Authenticator``: by tokens of the store, a proxy's header, or a user's function."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from starlette.requests import Request

from ..errors import InvalidInput
from ..person_names import check_person
from .calls import Caller
from .gate_problems import build_credential_problem

Authenticate = Callable[[Request], Awaitable[Caller | None]]


class Authenticator(Protocol):
    """Tells who sends a request."""

    async def authenticate(self, request: Request) -> Caller:
        """The caller. Raises Problem (unauthenticated) - no valid credential."""
        ...


def read_bearer(values: Sequence[str]) -> str:
    """Read the credential out of all headers Authorization of a request. Raises Problem (unauthenticated)."""
    if not values:
        raise build_credential_problem("no token was sent; send the header Authorization: Bearer TOKEN", given=False)
    if len(values) > 1:  # servers and proxies differ about which one counts
        raise build_credential_problem("the header Authorization was sent twice")
    scheme, _, credential = values[0].partition(" ")
    if scheme.lower() != "bearer" or not (credential := credential.strip()):
        raise build_credential_problem("the header Authorization must be: Bearer TOKEN")
    return credential


class FunctionAuthenticator:
    """Asks a function of the user's own."""

    def __init__(self, authenticate: Authenticate) -> None:
        self._authenticate = authenticate

    async def authenticate(self, request: Request) -> Caller:
        caller = await self._authenticate(request)
        if caller is None:
            raise build_credential_problem("no valid credential was sent", given="authorization" in request.headers)
        if not caller.name.strip():
            raise build_credential_problem("the caller has no name, by which acts could be signed")
        try:
            check_person(caller.name, "name of the caller")
        except InvalidInput as error:
            raise build_credential_problem(str(error)) from None
        return caller
