"""Runs an App in this process: makes its node from its settings, with its description and its alert sinks."""

import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from typing import Any

import msgspec

from ..config import Configuration
from ..core.alerts import Alert
from ..declare.limits import encode_policies
from ..declare.providers import Groups, group_agents
from ..declare.steps import Agent
from ..declare.workflows import Workflow
from ..model.processes import ProcessAbout
from ..runtime.alert_sinks import AlertSink, CommandSink, FunctionSink, LogSink, WebhookSink
from ..runtime.alerts import Alerting
from ..runtime.callbacks import list_steps_without_url
from ..runtime.code import Code, build_versions
from ..runtime.hosted_agent import choose_hosted
from ..runtime.node import Node, NodePlan, NodeSession
from ..runtime.ports import Ports
from ..runtime.single_pass import PassReport, SinglePass
from ..runtime.upkeep import Upkeep
from ..store.state_store import StateStore
from .schedule_declarations import declare_schedules
from .session import Session

OnAlert = Callable[[Alert], Any]


@asynccontextmanager
async def run_node(
    session: Session,
    store: StateStore,
    roles: frozenset[str],
    agents: tuple[Agent, ...],
    configuration: Configuration,
    *,
    drain: bool = True,
) -> AsyncIterator[None]:
    """Open the App and run these roles in this process. Raises InvalidInput, DefinitionError, StoreError, SchemaOutdated.

    Args:
        agents: those to host.
        drain: on leaving, let running attempts end.
    """
    with ExitStack() as claim:
        claim.enter_context(session.openings.claim_run())
        await session.open(store)
        try:
            node = _make_node(session, roles, agents, configuration)
            if "scheduler" in roles:  # before it can lead: what is due by a new line is not run by the old one
                await declare_schedules(session)
            await node.start()
            session.node = node
            try:
                yield
            finally:
                session.node, session.draining_node = None, node
                claim.close()
                try:
                    await node.stop(drain=drain)
                finally:
                    session.draining_node = None
        finally:
            await session.close()


def _make_node(
    session: Session, roles: frozenset[str], agents: tuple[Agent, ...], configuration: Configuration
) -> Node:
    store, ports = session.store, session.ports
    session.commit_counts.counted_tags = configuration.metrics_tags
    groups = group_agents(session.agents)
    said, settings = (
        _about(session.app, agents, session.codes, roles, groups),
        session.settings or configuration.node_settings(),
    )
    versions: dict[str, tuple[str, ...]] = {}
    if "scheduler" in roles:
        versions = build_versions(session.codes, settings.deployment, is_pinned=session.version_pinning)
    pulled = tuple(sorted(agent.name for agent in session.agents if agent.is_pulled))
    without_url = tuple(list_steps_without_url(choose_hosted(agents, roles), settings.public_url))
    about = msgspec.json.encode(
        msgspec.structs.replace(said, pulled=pulled, without_url=without_url, versions=versions)
    ).decode()
    alerting = make_alerting(session, configuration)
    tracer = None if session.tracing is None else session.tracing.make_tracer(store)

    def make_session() -> NodeSession:
        plan = NodePlan(
            agents=agents,
            codes=session.codes,
            store=store,
            ports=ports,
            settings=settings,
            roles=roles,
            on_end=lambda task, run: session.settle_ended(task, run.loaded),
            substitutes=session.substitutes,
            about=about,
            app=session.app,
            upkeep=Upkeep(store=store, ports=ports, replies_keep_seconds=configuration.replies_keep_seconds),
            alerting=alerting,
            groups=groups,
            commit_counts=session.commit_counts,
            tracer=tracer,
            submit=session.submit,
            versions=versions,
        )
        return NodeSession(plan)

    node = Node(make_session)
    store.on_wake_up(node.look)
    return node


def _about(
    name: str, agents: tuple[Agent, ...], codes: Mapping[str, Code], roles: frozenset[str], groups: Groups
) -> ProcessAbout:
    runs_code, hosted = "scheduler" in roles, choose_hosted(agents, roles)
    return ProcessAbout(
        app=name,
        roles=tuple(sorted(roles)),
        workflows=tuple(sorted(codes)) if runs_code else (),
        steps=tuple(sorted((agent.name, step) for agent in hosted for step in agent.steps)),
        policies=_policies(codes) if runs_code else {},
        limits={agent.name: encode_policies(agent.limits) for agent in hosted if agent.limits},
        providers=tuple(
            (base, agent.name, agent.weight, agent.preference)
            for base, group in sorted(groups.items())
            for agent in group
        ),
    )


def _policies(codes: Mapping[str, Code]) -> dict[str, str]:
    """Policies of the workflows by name, as a task's row has them. A task of one step is submitted by Python only."""
    workflows = {name: code.definition for name, code in sorted(codes.items())}
    return {name: definition.policy_text for name, definition in workflows.items() if isinstance(definition, Workflow)}


def make_alerting(session: Session, configuration: Configuration) -> Alerting:
    """Make what delivers the alerts of the App's store to the configured sinks."""
    return Alerting(
        _sinks(configuration, session.ports, session.on_alert),
        store=session.store,
        ports=session.ports,
        retry_seconds=configuration.alerts_retry_seconds,
        retry_seconds_max=configuration.alerts_retry_seconds_max,
    )


async def supervise_once(session: Session, configuration: Configuration) -> PassReport:
    """Make one pass of supervision and upkeep on the store that the App is open on. Raises StoreError, SchemaOutdated."""
    store, ports = session.store, session.ports
    single_pass = SinglePass(
        store=store,
        ports=ports,
        settings=session.settings or configuration.node_settings(),
        upkeep=Upkeep(store=store, ports=ports, replies_keep_seconds=configuration.replies_keep_seconds),
        alerting=make_alerting(session, configuration),
    )
    return await single_pass.run()


def _sinks(configuration: Configuration, ports: Ports, on_alert: Sequence[OnAlert]) -> list[AlertSink]:
    sinks: list[AlertSink] = [FunctionSink(function, ports=ports) for function in on_alert]
    if configuration.alerts_log:
        sinks.append(LogSink())
    if configuration.alerts_command:
        command = configuration.alerts_command
        sinks.append(CommandSink(command, timeout_seconds=configuration.alerts_command_timeout_seconds))
    if configuration.alerts_webhook_url:
        sinks.append(
            WebhookSink(
                configuration.alerts_webhook_url,
                configuration.alerts_webhook_secret,
                ports=ports,
                unix_time=time.time,
                timeout_seconds=configuration.alerts_webhook_timeout_seconds,
            )
        )
    return sinks
