"""One authenticated request, as the functions of the routes see it."""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any, TypeVar

import msgspec
from fastapi import Depends
from starlette.requests import Request

from ..client.client import Client
from ..client.session import Session
from ..operations.declaration import Payloads
from ..tokens import ANY_REACH, OpenTaskCap, Reach
from .caller_limits import RequestPlace
from .problems import INVALID_JSON, NOT_OPEN, Problem
from .reached_store import narrow_store
from .scopes import may_read_payloads
from .shutdown_signal import ShutdownSignal
from .withholding import withhold

T = TypeVar("T")


class Caller(msgspec.Struct, frozen=True):
    """Sender of a request.

    Args:
        name: signs each act in the history: the token's name, or what the proxy says. Never what the request says.
        scopes: what the caller may do.
        credential: what requests are counted by, like the id of a token; empty: the name.
        reach: the Apps and workflows that the caller is restricted to.
        cap: on the caller's open tasks; None: any number.
    """

    name: str
    scopes: frozenset[str]
    credential: str = ""
    reach: Reach = ANY_REACH
    cap: OpenTaskCap | None = None


class HttpCall:
    """One request that has passed the gate.

    Args:
        client: the App of this server.
        caller: who sends it.
        body: its bytes, within the limit.
        request: for headers and the state of the connection.
        shutdown: whether the server is about to end; a route that waits for news waits for it too.
        confirm: admits the caller once more, if the seconds that it is given are many; see ``Gate.confirm``.
        place: among the requests of the caller. A route says there that it waits for news.
    """

    def __init__(
        self,
        client: Client,
        caller: Caller,
        body: bytes,
        request: Request,
        shutdown: ShutdownSignal,
        confirm: Callable[[float], Awaitable[None]],
        place: RequestPlace,
    ) -> None:
        self._client = client
        self.caller = caller
        self.body = body
        self.request = request
        self.shutdown = shutdown
        self.confirm = confirm
        self.place = place
        self._session: Session | None = None

    @property
    def client(self) -> Client:
        """The App, open. Raises Problem - it is not open."""
        if not self._client.session.is_open:
            raise Problem(NOT_OPEN, f"App {self._client.session.app} is not open in this process")
        return self._client

    @property
    def session(self) -> Session:
        """The Session of the App, open, with the part of its store that the caller reaches. Raises Problem - it is not open."""
        if self._session is None:
            whole, reach = self.client.session, self.caller.reach
            codes = {name: code for name, code in whole.codes.items() if reach.includes(whole.app, name)}
            is_whole = reach.is_whole and self.caller.cap is None
            self._session = (
                whole if is_whole else whole.narrow(narrow_store(whole.store, reach), codes, self.caller.cap)
            )
        return self._session

    @property
    def root(self) -> str:
        """The path under which the API is mounted; empty: it is not."""
        root: str = self.request.scope.get("root_path", "")
        return root

    @property
    def payloads(self) -> Payloads:
        """Value of ``payloads`` in an answer."""
        return "included" if may_read_payloads(self.caller.scopes) else "withheld"

    def encode(self, answer: Any) -> bytes:
        """Encode what a route answers, without what the caller may not read."""
        return msgspec.json.encode(self.show(answer))

    def show(self, answer: T) -> T:
        """Return an answer without what the caller may not read: see ``withholding``."""
        return withhold(answer, self.caller.scopes)

    def read(self, kind: type[T]) -> T:
        """Read the body as a Struct; the gate has refused doubtful JSON. Raises Problem - another shape."""
        try:
            return msgspec.json.decode(self.body, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise Problem(INVALID_JSON, f"the body: {error}") from error


async def _get_call(request: Request) -> HttpCall:  # FastAPI would run a plain function in a thread
    call: HttpCall = request.scope["arriero.call"]
    return call


Call = Annotated[HttpCall, Depends(_get_call)]
