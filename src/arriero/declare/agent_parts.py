"""Declaration of what the steps of an Agent share: its resources, and the probe of its service."""

import inspect
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import Any, Protocol, TypeVar, overload
from weakref import WeakSet

import msgspec

from ..errors import DefinitionError
from ..model.policies import Breaker, Duration, seconds
from .remote import refuse_local_part
from .resources import Resource
from .signature import read_signature

PROBE_COMPLETE_WITHIN = 5.0  # seconds of a probe: a service that is healthy answers a health check much sooner
PROBE_COMPLETE_WITHIN_MAX = 300.0  # seconds: nobody else probes meanwhile


class Probe:
    """The probe of one Agent.

    Args:
        takes_target: the Agent has a ``breaker_key``: the function gets the name of the part that is asked.
    Raises: DefinitionError - other parameters, or a time that cannot work.
    """

    def __init__(
        self, function: Callable[..., Any], agent: str, *, takes_target: bool, complete_within: Duration
    ) -> None:
        self.complete_within = seconds(complete_within, f"Agent {agent}: complete_within of its probe", at_least=0.001)
        if self.complete_within > PROBE_COMPLETE_WITHIN_MAX:
            raise DefinitionError(
                f"Agent {agent}: complete_within of its probe is {self.complete_within:g} s; it must be at most"
                f" {PROBE_COMPLETE_WITHIN_MAX:g} s, because no other process asks meanwhile"
            )
        self.function = function
        self.takes_target = takes_target
        self.is_async = inspect.iscoroutinefunction(function)
        name = getattr(function, "__qualname__", repr(function))
        wanted = "one parameter, the name of the part that is asked" if takes_target else "no parameters"
        try:
            read_signature(function).bind(*([""] if takes_target else []))
        except (TypeError, ValueError) as error:
            why = "it has a breaker_key" if takes_target else "it has no breaker_key"
            raise DefinitionError(f"Agent {agent}: its probe {name} must take {wanted}, because {why}") from error


def check_may_have_probe(agent: str, declared: Probe | None, *, has_breaker: bool) -> None:
    """Refuse a probe of an Agent that has one already, or has no breaker. Raises DefinitionError."""
    if declared is not None:
        first = declared.function.__qualname__
        raise DefinitionError(f"Agent {agent} has a probe already: {first}; remove one of the two")
    if not has_breaker:
        raise DefinitionError(
            f"Agent {agent} has no breaker, so nothing would ask its probe; remove breaker=None or the probe"
        )


def mark_probe(breaker_text: str) -> str:
    """Return the text of a breaker's policy with the mark that its Agent has a probe; ``core.breaker`` reads it."""
    return msgspec.json.encode(msgspec.json.decode(breaker_text) | {"has_probe": True}).decode()


T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


class OpenedSession(Protocol):
    """A session of an App. ``users``: how many have the App open."""

    app: str

    @property
    def users(self) -> int: ...


def refuse_when_open(sessions: Iterable[OpenedSession], what: str) -> None:
    """Refuse a declaration that the processes of an open App would not know. Raises DefinitionError."""
    for session in sessions:
        if session.users:
            raise DefinitionError(
                f"{what} was declared while App {session.app} is open, and its processes would not know it: declare it before"
                " `async with` or `running()`, where the module is imported"
            )


class AgentParts:
    """The part of an Agent that declares resources and the probe."""

    name: str
    breaker: Breaker | None
    breaker_key: Callable[..., str] | None
    breaker_text: str

    def __init__(self) -> None:
        self.resources: list[Resource[Any]] = []
        self.declared_probe: Probe | None = None
        self.sessions: WeakSet[OpenedSession] = WeakSet()  # of the Apps that were opened with it

    @property
    def is_remote(self) -> bool:
        """Returns True if programs outside of Python carry its steps out."""
        raise NotImplementedError

    @overload
    def resource(self, fn: Callable[[], AsyncIterator[T]], /) -> Resource[T]: ...
    @overload
    def resource(self, fn: Callable[[], Iterator[T]], /) -> Resource[T]: ...
    def resource(self, fn: Any, /) -> Any:
        """Declare a resource that the Agent's steps share: decorates a function that yields it once, async or plain.

        It is opened before the first attempt in each process that hosts the Agent, and closed after the drain. Calling the
        resource inside a step gives what was yielded. Raises DefinitionError - the function does not yield.
        """
        refuse_when_open(self.sessions, f"a resource of Agent {self.name}")
        if self.is_remote:
            refuse_local_part(self.name, "resource")
        resource: Resource[Any] = Resource(fn, self.name)
        self.resources.append(resource)
        return resource

    @overload
    def probe(self, fn: F, /) -> F: ...
    @overload
    def probe(self, /, *, complete_within: Duration = PROBE_COMPLETE_WITHIN) -> Callable[[F], F]: ...
    def probe(self, fn: Any = None, /, *, complete_within: Duration = PROBE_COMPLETE_WITHIN) -> Any:
        """Declare how arriero asks the service if it is healthy, while the breaker is open: in place of a real request.

        Decorates a function, async or plain, without parameters; with ``breaker_key`` it gets the name of the part that is
        asked. If it returns, the service is healthy. If it raises, it is not. Resources of the Agent can be called in it.

        Args:
            complete_within: seconds or timedelta after which it is cut off and counts as failed; 5 by default, 300 at most.
        Returns: the function itself.
        Raises: DefinitionError - a second one, other parameters, or an Agent without a breaker.
        """

        def declare(function: Callable[..., Any]) -> Callable[..., Any]:
            refuse_when_open(self.sessions, f"the probe of Agent {self.name}")
            if self.is_remote:
                refuse_local_part(self.name, "probe")
            check_may_have_probe(self.name, self.declared_probe, has_breaker=self.breaker is not None)
            has_key = self.breaker_key is not None
            self.declared_probe = Probe(function, self.name, takes_target=has_key, complete_within=complete_within)
            self.breaker_text = mark_probe(self.breaker_text)
            return function

        return declare if fn is None else declare(fn)
