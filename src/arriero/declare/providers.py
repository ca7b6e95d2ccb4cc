"""Agents that provide the steps of another one: which Agents serve the same calls, and whether their steps are the same.

A call names the base Agent. Its providers are declared with ``provides=``. The base serves its own steps, too.
"""

from collections.abc import Iterable
from typing import Any

from ..errors import DefinitionError
from ..model.policies import StepPolicy
from .step_options import COMPLETE_WITHIN, DEFAULT_RETRY, DEFAULT_SUPERVISION
from .steps import Agent, Step

Groups = dict[str, tuple[Agent, ...]]  # by the name of the base, which comes first

_DEFAULT = StepPolicy(COMPLETE_WITHIN, None, DEFAULT_RETRY, DEFAULT_SUPERVISION)


def group_agents(agents: Iterable[Agent]) -> Groups:
    """Group the Agents of an App that serve the same calls. An Agent without a provider is in no group.

    Raises: DefinitionError - a base is not in the App, or the steps of a provider differ from those of its base.
    """
    known = tuple(agents)
    groups: Groups = {}
    for provider in known:
        base = provider.provides
        if base is None:
            continue
        if not any(one is base for one in known):
            raise DefinitionError(
                f"Agent {provider.name} provides {base.name}, which is not in this App: add {base.name} to its agents"
            )
        _compare(base, provider)
        groups[base.name] = (*groups.get(base.name, (base,)), provider)
    return groups


def _compare(base: Agent, provider: Agent) -> None:
    for name in base.steps:
        if name not in provider.steps:
            raise DefinitionError(
                f"Agent {provider.name} provides {base.name}, but has no step {name}: declare that step for it, too"
            )
    for name, step in provider.steps.items():
        if name not in base.steps:
            raise DefinitionError(
                f"Agent {provider.name} provides {base.name}, which has no step {name}: declare the step for {base.name}, or for"
                " an Agent that provides nothing"
            )
        if difference := _find_difference(base.steps[name], step):
            raise DefinitionError(
                f"step {name} of Agent {provider.name} differs from that of {base.name}, whose steps it provides: {difference}"
            )


def _find_difference(of_base: Step[Any, Any], own: Step[Any, Any]) -> str:
    """Return how a step of a provider differs from the base's, with the remedy; empty: in nothing that matters."""
    base = of_base.agent.name
    if of_base.signature.describe() != own.signature.describe():
        return "give both the same parameters, defaults and types"
    if of_base.is_remote is not own.is_remote:
        return "only one of them is remote; declare both so, or none"
    for option in ("pivot", "effect_free"):
        if getattr(of_base, option) != getattr(own, option):
            return f"{option} is {getattr(own, option)} here and {getattr(of_base, option)} there; give both the same"
    if own.interchangeable:
        return f"interchangeable is said once, for {base}; leave it out here"
    if not _fits(of_base.policy, own.policy) or own.supervision not in (None, of_base.supervision):
        return f"the times, retry and supervision of {base} hold for all its providers; leave them out here"
    if (of_base.undone_by is None) != (own.undone_by is None):
        without = own if own.undone_by is None else of_base
        return f"only one of them has a compensation; declare one for {without.agent.name}, too, or none for both"
    if of_base.undone_by is None or own.undone_by is None or _fits(of_base.undone_by.policy, own.undone_by.policy):
        return ""
    return f"the times, retry and supervision of {base}'s compensation hold for all its providers; leave them out here"


def _fits(of_base: StepPolicy, own: StepPolicy) -> bool:
    """Returns True if each part of a provider's policy is that of the base, or the default."""
    parts = zip(*map(_list_parts, (own, of_base, _DEFAULT)), strict=True)
    return all(given in (wanted, default) for given, wanted, default in parts)


def _list_parts(policy: StepPolicy) -> tuple[object, ...]:
    return policy.complete_within, policy.wait_within, policy.retry, policy.supervision, policy.extend_max
