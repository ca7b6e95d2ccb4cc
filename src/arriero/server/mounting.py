"""The HTTP API inside a web application of the user's own."""

from collections.abc import Iterable

from ..client.client import Client
from ..config_values import ORIGINS, UnfitValue
from ..errors import InvalidInput
from .application import ApiServer, build_application
from .authentication import Authenticate, FunctionAuthenticator
from .request_rules import LOOPBACK_NAMES, RequestRules
from .routing import GateLimits
from .token_authentication import TokenAuthenticator


def mount(
    app: Client,
    *,
    authenticate: Authenticate | None = None,
    hosts: Iterable[str] = (),
    origins: Iterable[str] = (),
    limits: GateLimits = GateLimits(),
) -> ApiServer:
    """Build the HTTP API of an App for ``web.mount("/arriero", mount(app))`` in FastAPI or Starlette.

    The lifespan of the web application opens the App: ``async with app:`` or ``async with app.running():``. While it is not open,
    every request but that for liveness is answered with 503.

    Args:
        app: the App.
        authenticate: ``async def authenticate(request) -> Caller | None`` instead of tokens. If it reads a cookie, a page of
            somebody else could act with it; the check of the header Origin is then all that stands before that.
        hosts: names by which the web application is known, beside localhost; ``*`` for any, if it judges the header Host itself.
        origins: of pages of others that may use the API from a browser.
        limits: what one caller may send.
    Raises: DefinitionError - a route has no gate; InvalidInput - what is given as an origin is none, or any page.
    """
    authenticator = TokenAuthenticator(app.session) if authenticate is None else FunctionAuthenticator(authenticate)
    known = frozenset(LOOPBACK_NAMES) | frozenset(host.lower() for host in hosts)
    rules = RequestRules(hosts=known, origins=_check_origins(origins))
    return build_application(app, authenticator, limits=limits, rules=rules)


def _check_origins(origins: Iterable[str]) -> frozenset[str]:
    given = tuple(origins)
    try:
        return frozenset(ORIGINS.checked(given))
    except UnfitValue as error:
        raise InvalidInput(f"origins are {given!r}: {str(error) or f'they must be {ORIGINS.must_be}'}") from error
