"""Agents as operators see them: how their service is, what waits for it, its limits and providers, and the verbs on one of them."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

import msgspec

from ..core.breaker import compute_next_look
from ..core.lease import read_process_about
from ..core.limits import build_book, list_limits
from ..core.routing import Candidate, SurveyedAgent, compute_shares, survey_hosts
from ..errors import InvalidInput, UnknownName, VerbRefused
from ..inspection.facts import AgentLoad, AgentMeasurements
from ..model import Instant
from ..model.agents import AgentVerb, BreakerRow, BreakerState, LimitsInUse, read_limit_keys
from ..model.answers import BreakerApplied, Refusal
from ..model.commands import OperateAgent
from ..model.processes import ProcessRow
from ..payloads import codec
from ..store.state_store import StateStore
from . import task_verbs
from .agent_metrics import AgentMetrics, MetricsBuilder, find_hosts, sum_up_counts
from .row_shapes import build_output, to_datetime
from .session import Session

ProviderKey = tuple[str, str, str]  # Agent, App, target


class ProviderView(msgspec.Struct, frozen=True, kw_only=True):
    """One of the Agents that provide the same steps.

    Attributes:
        share: part of the new requests that it gets as things stand, from 0 to 1.
        state: of its breaker; ``paused`` if an operator keeps it from taking requests.
        health: from 0 to 1, by the calls of the processes alive.
        free, places: of all processes alive that host it; None: none of them has reported yet.
        is_hosted: a process alive hosts it.
    """

    agent: str
    share: float
    weight: float
    preference: int
    state: str
    health: float
    free: int | None
    places: int | None
    is_hosted: bool


class _Rank(msgspec.Struct, frozen=True):
    agent: str
    weight: float
    preference: int


def list_provider_views(
    processes: Iterable[ProcessRow], breakers: Mapping[ProviderKey, BreakerRow], now: Instant
) -> dict[tuple[str, str], tuple[ProviderView, ...]]:
    """List the Agents of each group, by the Agent that the workflows call and its App.

    Args:
        processes: alive.
        breakers: as they stand in the store.
    """
    alive = tuple(processes)
    groups: dict[tuple[str, str], dict[str, _Rank]] = {}
    for process in alive:
        about = read_process_about(process)
        for base, agent, weight, preference in about.providers:
            groups.setdefault((base, about.app), {})[agent] = _Rank(agent, weight, preference)
    found = {}
    for (base, app), group in groups.items():
        hosted = survey_hosts(alive, now, app)
        found[base, app] = _build_views(list(group.values()), app, hosted, breakers)
    return found


def _build_views(
    group: list[_Rank], app: str, hosted: Mapping[str, SurveyedAgent], breakers: Mapping[ProviderKey, BreakerRow]
) -> tuple[ProviderView, ...]:
    of = {one.agent: hosted.get(one.agent) for one in group}
    states = {one.agent: _name_state(breakers.get((one.agent, app, ""))) for one in group}
    shares = compute_shares(
        [
            Candidate(
                name=one.agent,
                weight=one.weight,
                preference=one.preference,
                health=1.0 if (host := of[one.agent]) is None else host.health,
                has_room=host is not None and host.has_room,
                is_barred=states[one.agent] != str(BreakerState.CLOSED),
                is_hosted=host is not None,
            )
            for one in group
        ]
    )
    return tuple(
        ProviderView(
            agent=one.agent,
            share=round(shares.get(one.agent, 0.0), 4),
            weight=one.weight,
            preference=one.preference,
            state=states[one.agent],
            health=1.0 if host is None else host.health,
            free=None if host is None else host.free,
            places=None if host is None or host.free is None else host.places,
            is_hosted=host is not None,
        )
        for one in group
        for host in (of[one.agent],)
    )


def _name_state(row: BreakerRow | None) -> str:
    if row is None:
        return str(BreakerState.CLOSED)
    return "paused" if row.paused_at is not None else str(row.state)


KEYS_SHOWN_MAX = 10  # of a limit with keys: those that use most


class LimitView(msgspec.Struct, frozen=True, kw_only=True):
    """A limit of an Agent, or one key of it.

    Attributes:
        name: of the limit.
        kind: ``concurrent``: attempts at a time. ``rate``: calls that begin within ``per`` seconds.
        most: how many it allows.
        key: empty: it has no keys, or these are the requests without one.
        in_use: running attempts, or calls that began within the window.
    """

    name: str
    kind: str
    most: int
    per: float
    key: str
    in_use: int


def build_limit_views(use: LimitsInUse) -> tuple[LimitView, ...]:
    """Build the views of an Agent's limits. Of a limit with keys those are shown that use most of it."""
    book = build_book(use)
    views: list[LimitView] = []
    for policy in list_limits(use.row.limits):
        used: Counter[str] = Counter({rate.key: 0 for rate in use.rates if rate.name == policy.name})
        used.update({read_limit_keys(keys).get(policy.name, ""): 0 for keys, _ in use.running})
        keys = list(used) if policy.is_keyed else [""]
        counted = sorted(((book.count_used(policy, key), key) for key in keys), key=lambda one: (-one[0], one[1]))
        views += [
            LimitView(name=policy.name, kind=policy.kind, most=policy.most, per=policy.per, key=key, in_use=count)
            for count, key in counted[:KEYS_SHOWN_MAX]
            if count or not policy.is_keyed
        ]
    return tuple(views)


class AgentView(msgspec.Struct, frozen=True, kw_only=True):
    """An Agent of an App, or one target of it, as it stands.

    Attributes:
        target: the part of its service that has a separate breaker; empty: the whole Agent.
        state: ``closed``, ``open`` or ``half_open``.
        since: when the state changed last; None: it was never open.
        reason: why it is not closed. ``opened_by``: the person who opened it; empty: it opened by itself.
        failing_since: when the calls began to fail, as far as they were looked at.
        next_call_at: when a call may be made next while it is not closed; None: only an event or an operator changes that.
        canaries: of a half-open breaker: ended, running and all of this wave.
        paused_at, paused_by, pause_reason: an operator keeps it from taking requests.
        waiting, running: requests that are due, and running attempts, of all Apps and targets of this Agent.
        processes: numbers of the processes alive that host it.
        limits: of the whole Agent, with what is in use; empty of one of its targets.
        metrics: of its calls with all its targets, as last written; None in the answer to a verb.
        providers: of an Agent whose steps others provide as well: all of them, itself first, of the whole Agent alone.
        health: from 0 to 1, by the calls of the processes alive; None: of a target, or no process hosts it.
        free, places: of all processes alive that host it; None: of a target, or none has reported.
    """

    agent: str
    app: str
    target: str
    state: str
    since: datetime | None = None
    reason: str = ""
    opened_by: str = ""
    failing_since: datetime | None = None
    next_call_at: datetime | None = None
    canaries: tuple[int, int, int] | None = None
    paused_at: datetime | None = None
    paused_by: str = ""
    pause_reason: str = ""
    waiting: int = 0
    running: int = 0
    processes: tuple[int, ...] = ()
    limits: tuple[LimitView, ...] = ()
    metrics: AgentMetrics | None = None
    providers: tuple[ProviderView, ...] = ()
    health: float | None = None
    free: int | None = None
    places: int | None = None

    @property
    def shown(self) -> str:
        """Its state in the word that operators see."""
        return "paused" if self.paused_at is not None else self.state


def build_agent_view(
    row: BreakerRow,
    now: Instant,
    loads: Sequence[AgentLoad] = (),
    processes: Iterable[ProcessRow] = (),
    metrics: AgentMetrics | None = None,
    limits: LimitsInUse | None = None,
) -> AgentView:
    """Build the view of a breaker. A breaker that is closed shows nothing of its last outage but when that ended."""
    is_open = row.state is not BreakerState.CLOSED
    ended = row.succeeded + row.failed
    wave = (ended, row.granted - ended, row.wave) if row.state is BreakerState.HALF_OPEN else None
    return build_output(
        AgentView,
        row,
        since=to_datetime(row.changed_at or None),
        reason=row.reason if is_open else "",
        opened_by=row.opened_by if is_open else "",
        failing_since=to_datetime(row.failing_since) if is_open else None,
        next_call_at=to_datetime(compute_next_look(row, now)),
        canaries=wave,
        waiting=sum(load.due for load in loads),
        running=sum(load.running for load in loads),
        processes=tuple(process.process_no for process in processes),
        limits=() if limits is None or row.target else build_limit_views(limits),
        metrics=metrics,
    )


async def load_agent_views(store: StateStore, measured: AgentMeasurements | None = None) -> list[AgentView]:
    """Load all Agents that processes alive host, that have open requests, that were called within the last hour, or whose
    breaker was open once; by name. ``measured``: as the store has just measured them; None: it is asked."""
    now, processes = await store.known_processes()
    hosts = find_hosts(processes, now)
    breakers = await store.list_breakers()
    rows = {(row.agent, row.app, row.target): row for row in breakers}
    measured = await store.measure_agents() if measured is None else measured
    counts = await sum_up_counts(measured)
    limits = {(use.row.agent, use.row.app): use for use in await store.list_limits()}
    named = {(agent, app, "") for agent, app in hosts} | rows.keys()
    named |= {(agent, app, "") for (app, agent), of_agent in counts.items() if of_agent.recent[-1].calls}
    loads: dict[str, list[AgentLoad]] = {}
    for load in measured.loads:
        loads.setdefault(load.agent, []).append(load)
    known = {agent for agent, _, _ in named}
    # A verb on an Agent that no process alive hosts must concern the Apps whose requests wait.
    named |= {(load.agent, load.app, "") for load in measured.loads if load.agent not in known}
    builder = MetricsBuilder(measured, counts, breakers)
    alive = [process for process in processes if process.lease_until > now]
    providers = list_provider_views(alive, rows, now)
    surveyed = {app: survey_hosts(alive, now, app) for _, app, _ in named}
    views = []
    for agent, app, target in sorted(named):
        row = rows.get((agent, app, target)) or BreakerRow(app=app, agent=agent, target=target)
        hosting, metrics = hosts.get((agent, app), ()), builder.build(app, agent)
        view = build_agent_view(row, now, loads.get(agent, ()), hosting, metrics, limits.get((agent, app)))
        group = providers.get((agent, app), ()) if not target else ()
        views.append(_add_room(msgspec.structs.replace(view, providers=group), surveyed))
    return views


def _add_room(view: AgentView, surveyed: Mapping[str, Mapping[str, SurveyedAgent]]) -> AgentView:
    host = None if view.target else surveyed[view.app].get(view.agent)
    if host is None:
        return view
    places = None if host.free is None else host.places
    return msgspec.structs.replace(view, health=host.health, free=host.free, places=places)


class AgentHandle:
    """The handle of an Agent of an App, or of one target of it, for operators. Nothing is asked of the store by making it."""

    def __init__(self, session: Session, app: str, agent: str, target: str) -> None:
        self._session = session
        self._app = app
        self.agent = agent
        self.target = target

    def __repr__(self) -> str:
        return f"<Agent {self._build_unopened().label} of App {self._app}>"

    async def view(self) -> AgentView:
        """Read the current state of the Agent."""
        store = self._session.store
        for view in await load_agent_views(store):
            if (view.agent, view.app, view.target) == (self.agent, self._app, self.target):
                return view
        return build_agent_view(self._build_unopened(), store.now())

    async def open(self, *, by: str, reason: str) -> AgentView:
        """Make no more calls until an operator closes it. Running attempts continue to their end.

        Args:
            by, reason: who asks, and why; kept in the store's history.
        Raises: VerbRefused - it is open until an operator closes it already; InvalidInput - neither this App nor the store
            knows the Agent, or who asks and why is not said; StoreError.
        """
        return await self._operate(AgentVerb.OPEN, by, reason)

    async def close(self, *, by: str, reason: str) -> AgentView:
        """Make calls as always again, immediately and without canaries: an operator knows that the service is healthy.

        Raises: VerbRefused - it is closed; as ``open``.
        """
        return await self._operate(AgentVerb.CLOSE, by, reason)

    async def pause(self, *, by: str, reason: str) -> AgentView:
        """Take no requests until it is resumed, whatever the breaker says. Running attempts continue to their end.

        Raises: VerbRefused - it is paused; as ``open``.
        """
        return await self._operate(AgentVerb.PAUSE, by, reason)

    async def resume(self, *, by: str, reason: str) -> AgentView:
        """Take requests again. Raises: VerbRefused - it is not paused; as ``open``."""
        return await self._operate(AgentVerb.RESUME, by, reason)

    async def _operate(self, verb: AgentVerb, by: str, reason: str) -> AgentView:
        who, why = task_verbs.check_signature(by, reason)
        if verb in (AgentVerb.OPEN, AgentVerb.PAUSE) and self.agent not in {one.name for one in self._session.agents}:
            choose_app(
                await load_agent_views(self._session.store), self.agent, self._app
            )  # a name with a slip is refused
        command = OperateAgent(
            actor=task_verbs.ACTOR,
            verb=verb,
            app=self._app,
            agent=self.agent,
            target=self.target,
            by=who,
            reason=why,
        )
        (answer,) = await self._session.operate([command])
        if isinstance(answer, Refusal):
            raise VerbRefused(answer.detail, verb=verb, state=answer.state)
        assert isinstance(answer, BreakerApplied)
        return build_agent_view(answer.breaker, self._session.store.now())

    def _build_unopened(self) -> BreakerRow:
        return BreakerRow(app=self._app, agent=self.agent, target=self.target)


def check_agent_name(agent: str, target: str) -> None:
    """Check the names in a handle. Raises InvalidInput."""
    codec.check_id(agent, "name of an Agent")
    if target:
        codec.check_id(target, "target of an Agent")


def choose_app(views: Sequence[AgentView], agent: str, app: str | None) -> str:
    """Choose the App whose Agent an operator means.

    Args:
        app: as the person named it; None: not at all.
    Raises: InvalidInput - nobody knows the Agent, or several Apps have one of the name.
    """
    apps = sorted({view.app for view in views if view.agent == agent})
    if app is not None and app in apps:
        return app
    if not apps or app is not None:
        where = "" if app is None else f" in App {app!r}"
        raise UnknownName(f"there is no Agent {agent!r}{where}; see `arriero agent list`")
    if len(apps) > 1:
        raise InvalidInput(
            f"several Apps have an Agent {agent!r}: name one with --app, of {', '.join(map(repr, apps))}"
        )
    return apps[0]
