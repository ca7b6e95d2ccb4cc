"""Declaration of what the steps of an Agent share: its resources, and the probe of its service."""

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, TypeVar, overload

from ..model.policies import Breaker, Duration
from .probe import COMPLETE_WITHIN as PROBE_WITHIN
from .probe import Probe, check_may_have_probe, mark_probe
from .remote import refuse_local_part
from .resources import Resource

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


class AgentParts:
    """The part of an Agent that declares resources and the probe."""

    name: str
    breaker: Breaker | None
    breaker_key: Callable[..., str] | None
    breaker_text: str

    def __init__(self) -> None:
        self.resources: list[Resource[Any]] = []
        self.declared_probe: Probe | None = None

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
        if self.is_remote:
            refuse_local_part(self.name, "resource")
        resource: Resource[Any] = Resource(fn, self.name)
        self.resources.append(resource)
        return resource

    @overload
    def probe(self, fn: F, /) -> F: ...
    @overload
    def probe(self, /, *, complete_within: Duration = PROBE_WITHIN) -> Callable[[F], F]: ...
    def probe(self, fn: Any = None, /, *, complete_within: Duration = PROBE_WITHIN) -> Any:
        """Declare how arriero asks the service if it is well, while the breaker is open: in place of a real request.

        Decorates a function, async or plain, without parameters; with ``breaker_key`` it gets the name of the part that is
        asked. If it returns, the service is well. If it raises, it is not. Resources of the Agent can be called in it.

        Args:
            complete_within: seconds or timedelta after which it is cut off and counts as failed; 5 by default, 300 at most.
        Returns: the function itself.
        Raises: DefinitionError - a second one, other parameters, or an Agent without a breaker.
        """

        def declare(function: Callable[..., Any]) -> Callable[..., Any]:
            if self.is_remote:
                refuse_local_part(self.name, "probe")
            check_may_have_probe(self.name, self.declared_probe, has_breaker=self.breaker is not None)
            has_key = self.breaker_key is not None
            self.declared_probe = Probe(function, self.name, takes_target=has_key, complete_within=complete_within)
            self.breaker_text = mark_probe(self.breaker_text)
            return function

        return declare if fn is None else declare(fn)
