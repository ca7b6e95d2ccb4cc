"""App: Agents and workflows under a name. It builds the parts and forwards; it decides nothing."""

import inspect
import sys
import warnings
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime
from types import FrameType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, Unpack, overload

from ..declare.agent_parts import refuse_when_open
from ..declare.steps import Agent, Step, StepCall
from ..declare.workflows import Workflow, WorkflowCall, WorkflowDecorator, WorkflowOptions, find_newest, workflow
from ..errors import DefinitionError, InvalidInput, MissingCompensationWarning
from ..model import STEP_PREFIX
from ..model.policies import Duration, check_type
from ..payloads import codec
from ..runtime.code import Code
from .client import Client, run_configured
from .session import Session

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

    from ..core.alerts import Alert  # only who runs an App pays for loading it
    from ..model.schedules import OverlapName
    from .sync import SyncApp

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
OnAlert = TypeVar("OnAlert", bound="Callable[[Alert], Any]")


def _build_service(kind: Callable[P, Agent]) -> Callable[Concatenate["App", P], Agent]:
    """Build ``App.service``, which takes what an Agent takes."""

    def service(self: "App", /, *args: P.args, **kwargs: P.kwargs) -> Agent:
        """Declare an Agent of this App: the object for one remote service. It takes what ``Agent`` takes.

        Declare its steps by ``@service.step``. Raises: DefinitionError - an option that cannot work, a name that is taken, or
        the App is open.
        """
        return self._add_agent(kind(*args, **kwargs))

    service.__qualname__ = "App.service"
    vars(service)["__signature__"] = inspect.signature(kind.__init__)
    return service


class App(Client):
    """Agents and workflows under a name, and the state store they share.

    ``app.service(...)`` and ``@app.workflow`` declare them for this App alone. Those of several modules are given instead.

    Args:
        name: of the App.
        agents: whose steps its workflows await.
        workflows: that may be submitted.
        store: URL of the state store, ``sqlite:///PATH``, unless the environment (``ARRIERO_STORE``) or
            ``arriero.toml`` names one; without any, ``./arriero.db``.
        version_pinning: a task is continued only by processes of the deployment that began it (``ARRIERO_DEPLOYMENT``), until an
            operator moves it by the verb ``pin``. A workflow may say otherwise.
    Nothing is read or opened before ``async with`` or ``running()``. Raises DefinitionError for doubled names.
    """

    def __init__(
        self,
        name: str,
        *,
        agents: Iterable[Agent] = (),
        workflows: Iterable[Workflow[..., Any]] = (),
        store: str | None = None,
        version_pinning: bool = False,
    ) -> None:
        try:
            self.name = codec.check_id(name, "name of an App")
        except InvalidInput as error:
            raise DefinitionError(str(error)) from error
        self.agents = _check_each(agents, Agent, "agents")
        self.workflows = _check_each(workflows, Workflow, "workflows")
        super().__init__(Session(self.name, self._read_declared, store))
        self.session.version_pinning = bool(version_pinning)
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and frame.f_code.co_name == "__init__":  # of a subclass
            frame = frame.f_back
        # File and line, for the warning of missing compensations. None: it was given.
        self.made_at = None if frame is None else (frame.f_code.co_filename, frame.f_lineno)
        if self.agents or self.workflows:  # what is declared wrongly is refused here, and not where the App is opened
            _refuse_doubled_agents(self.agents)
            self._read_declared()
        self._fronts: dict[str, SyncApp] = {}

    def _read_declared(self, *, opening: bool = False) -> tuple[tuple[Agent, ...], dict[str, Code]]:
        """Check what is declared by now, and read the steps of the Agents. Raises DefinitionError."""
        if opening:
            for agent in self.agents:
                agent.sessions.add(self.session)
            if self.workflows and self.made_at is not None:  # only now all steps and compensations are there
                made_at, self.made_at = self.made_at, None
                warn_of_missing_compensations(self.name, self.agents, made_at)
        if [agent for agent in self.agents if agent.provides is not None]:
            from ..declare.providers import group_agents  # only who has providers pays for loading it

            group_agents(self.agents)  # refuses providers whose steps differ
        return self.agents, _build_codes(self.agents, self.workflows)

    service = _build_service(Agent)

    def _add_agent(self, agent: Agent) -> Agent:
        self._refuse_when_open(f"Agent {agent.name}")
        agents = (*self.agents, agent)
        _refuse_doubled_agents(agents)
        self.agents = agents
        return agent

    @overload
    def workflow(self, fn: Callable[P, Coroutine[Any, Any, R]], /) -> Workflow[P, R]: ...
    @overload
    def workflow(self, /, **options: Unpack[WorkflowOptions]) -> WorkflowDecorator: ...
    def workflow(self, fn: Callable[..., Any] | None = None, /, **options: Unpack[WorkflowOptions]) -> Any:
        """Declare a workflow of this App: an ``async def`` whose awaits of steps are recorded.

        Args:
            fn: the function.
            options: those of ``arriero.workflow``.
        Raises: DefinitionError - an option that cannot work, a name that is taken, or the App is open.
        """

        def declare(function: Callable[..., Any]) -> Workflow[..., Any]:
            declared = workflow(**options)(function)
            self._refuse_when_open(f"workflow {declared.name}")
            find_newest((*self.workflows, declared))
            self.workflows = (*self.workflows, declared)
            return declared

        return WorkflowDecorator(declare) if fn is None else declare(fn)

    def _refuse_when_open(self, what: str) -> None:
        refuse_when_open([self.session], what)

    async def __aenter__(self) -> "App":
        """A client: submits and asks; runs nothing. Raises StoreError, SchemaOutdated, InvalidInput."""
        await self.session.__aenter__()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.session.__aexit__(*exc)

    def running(
        self,
        *,
        store: str | None = None,
        roles: Iterable[str] | None = None,
        agents: Iterable[str] | None = None,
        lost_processes_max: int | None = None,
        deployment: str | None = None,
    ) -> AbstractAsyncContextManager["App"]:
        """Run Scheduler, Agents and Supervisor in this process; leaving drains.

        Args:
            store: URL; else as for the App.
            roles: some of scheduler, agents, supervisor and http; all but http by default. http gives out the requests of
                Agents outside of Python; the HTTP API that they ask is what `arriero serve` or ``arriero.server.mount`` serves.
            agents: names of the Agents to host; all by default.
            lost_processes_max: of processes that died with a task, without progress between, after which it is held; at
                least 3. The one who frees the task decides: give all processes of a store the same.
            deployment: name of this deployment of the code, for tasks that belong to theirs.
        Raises: InvalidInput for an unknown role, Agent or store, or a number that is too low; StoreError, SchemaOutdated.
        """
        run = run_configured(self.session, store, roles, agents, lost_processes_max, deployment)
        return self._enter_session(run)

    @asynccontextmanager
    async def _enter_session(self, run: AbstractAsyncContextManager[None]) -> AsyncIterator["App"]:
        async with run:
            yield self

    def on_alert(self, function: OnAlert) -> OnAlert:
        """Decorates a function, plain or async, that is notified of each alert: a task needs an operator, or no longer does.

        It is called in a process that runs the role supervisor; when it raises, it is called again later.
        """
        self._refuse_when_open(f"on_alert function {getattr(function, '__qualname__', function)}")
        self.session.on_alert.append(function)
        return function

    def trace(self, tracer_provider: "TracerProvider | None" = None) -> None:
        """Trace the tasks of this App with OpenTelemetry: spans of tasks, steps, attempts and compensations.

        A submission takes the current span as the task's parent. Without a provider of the SDK nothing is exported.

        Args:
            tracer_provider: of opentelemetry-sdk; None: the global one, as it is when the App begins to run.
        Raises: ImportError - opentelemetry-api is missing; DefinitionError - it is not a TracerProvider.
        """
        from ..tracing.tracer import TracingOptions  # only who traces tasks pays for loading it

        self.session.tracing = TracingOptions(tracer_provider)

    def schedule(
        self,
        name: str,
        call: WorkflowCall[Any] | StepCall[Any],
        *,
        cron: str | None = None,
        timezone: str | None = None,
        every: Duration | None = None,
        at: datetime | None = None,
        overlap: "OverlapName" = "skip",
        catch_up: Duration | None = None,
        jitter: Duration = 0,
        priority: int = 5,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        """Declare that a call is submitted again and again, or once at an instant. A process that runs the App keeps it.

        Each run is a task with the id ``APP/NAME@INSTANT``, so it is there once, however many processes lead.

        Args:
            name: of the schedule, unique in the App, without ``/``.
            call: of a workflow or of one step of this App.
            cron: a line with minute, hour, day of month, month and day of week, like ``0 3 * * *``.
            timezone: IANA name of the zone in which the line's times of day are meant; UTC by default.
            every: seconds or timedelta, at least one second; counted from the declaration.
            at: a datetime with a time zone; it is due once.
            overlap: what becomes of a run that is due while the last one is open: ``skip`` passes it over, ``queue`` lets it
                wait for its turn, ``all`` begins it immediately, ``cancel_running`` cancels the other one.
            catch_up: seconds or timedelta; runs that nobody submitted in time are run late if at most this old. None: only the last
                one is, however old; 0: none.
            jitter: seconds or timedelta that a run may be late on purpose, the same for the same instant.
            priority, tags: of its tasks, as for ``submit``. Others hold from the next run on.
        Raises: DefinitionError - an argument that cannot work, a name that is taken, or the App is open.
        """
        self._refuse_when_open(f"schedule {name}")
        from .schedule_declarations import (
            ScheduleOptions,  # only who has schedules pays for loading these
            check_declaration,
        )

        options = ScheduleOptions(
            cron=cron,
            timezone=timezone,
            every=every,
            at=at,
            overlap=overlap,
            catch_up=catch_up,
            jitter=jitter,
            priority=priority,
            tags=tags,
        )
        try:
            checked, declaration = check_declaration(self.session, name, call, options)
        except InvalidInput as error:
            raise DefinitionError(f"schedule {name!r}: {error}") from error
        if checked in self.session.schedules:
            raise DefinitionError(f"two schedules are named {checked!r}; a name stands for one")
        self.session.schedules[checked] = declaration

    @property
    def store(self) -> str:
        """URL of the store it is open on, with its absolute path; for ``arriero.connect``. Raises InvalidInput."""
        return self.session.url

    @property
    def sync(self) -> "SyncApp":
        """The front for code without an event loop; one for each App."""
        if "sync" not in self._fronts:
            from .sync import SyncApp  # only programs without an event loop pay for loading it

            self._fronts.setdefault("sync", SyncApp(self))  # of two threads that come first, both get the same one
        return self._fronts["sync"]

    def __repr__(self) -> str:
        return f"<App {self.name}: {len(self.agents)} Agents, {len(self.workflows)} workflows>"


def warn_of_missing_compensations(app: str, agents: Iterable[Agent], made_at: tuple[str, int]) -> None:
    """Warn of steps that nothing undoes, if others are undone. ``made_at``: file and line of the App."""
    steps = [step for agent in agents for step in agent.steps.values()]
    loose = sorted({f"{step.name} of Agent {step.agent.name}" for step in steps if step.lacks_undo})
    if loose and any(step.undone_by is not None for step in steps):
        warnings.warn_explicit(
            f"App {app}: nothing undoes the step {', the step '.join(loose)}. Its effect stays when a task is undone; if it is in"
            " doubt, the task waits for an operator. Declare its undo by @STEP.compensation, or mark it effect_free=True (it leaves"
            " no trace) or pivot=True (the task is never undone after it)",
            MissingCompensationWarning,
            *made_at,
        )


def _check_each(values: Iterable[T], of: type, what: str) -> tuple[T, ...]:
    if not isinstance(values, Iterable):
        raise DefinitionError(f"{what} of an App is {values!r}; give a list, like {what}=[...]")
    return tuple(check_type(value, of, f"one of the {what} of an App") for value in values)


def _refuse_doubled_agents(agents: tuple[Agent, ...]) -> None:
    names = [agent.name for agent in agents]
    if doubled := {name for name in names if names.count(name) > 1}:
        raise DefinitionError(f"two Agents are named {min(doubled)!r}; a name stands for one remote service")


def _build_codes(agents: tuple[Agent, ...], workflows: tuple[Workflow[..., Any], ...]) -> dict[str, Code]:
    codes: dict[str, Code] = {}
    definitions: list[tuple[str, Workflow[Any, Any] | Step[Any, Any]]]
    definitions = [(w.name, w) for w in find_newest(workflows)]
    called = [agent for agent in agents if agent.provides is None]  # the steps of the others have the same names
    definitions += [(STEP_PREFIX + step.name, step) for agent in called for step in agent.steps.values()]
    for name, definition in definitions:
        if name in codes:
            plain = name.rpartition(":")[2]
            raise DefinitionError(f"two steps are named {plain!r}; give one of them another name=")
        codes[name] = Code(name, definition)
    return codes
