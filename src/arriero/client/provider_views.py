"""The Agents that provide the same steps, as people see them: what each gets of the requests now, and why."""

from collections.abc import Iterable, Mapping

import msgspec

from ..breakers import BreakerRow, BreakerState
from ..core.lease import read_process_about
from ..core.room_reports import SurveyedAgent, survey_hosts
from ..core.routing import Candidate, compute_shares
from ..model import Instant
from ..processes import ProcessRow

ProviderKey = tuple[str, str, str]  # Agent, App, target


class ProviderView(msgspec.Struct, frozen=True, kw_only=True):
    """One of the Agents that provide the same steps.

    Attributes:
        share: part of the new requests that it gets as things stand, from 0 to 1.
        state: of its breaker; ``paused`` if a person keeps it from taking requests.
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
