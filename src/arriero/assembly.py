"""Makes the node of an App from its settings: what runs, what it says of itself, and whom it tells of alerts."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from .config import Configuration
from .core.alerts import Alert
from .definitions import Agent, Workflow
from .model import ProcessAbout, TaskRow
from .runtime.agent_host import Around
from .runtime.alert_sinks import AlertSink, CommandSink, FunctionSink, LogSink, WebhookSink
from .runtime.alerting import Alerting
from .runtime.code import Code
from .runtime.live import LiveTask
from .runtime.node import Node, Session
from .runtime.ports import Ports
from .runtime.settings import Settings
from .runtime.upkeep import Upkeep
from .store.base import StateStore

OnAlert = Callable[[Alert], Any]


def make_node(
    name: str,
    agents: tuple[Agent, ...],
    codes: Mapping[str, Code],
    *,
    store: StateStore,
    ports: Ports,
    settings: Settings | None,
    configuration: Configuration,
    roles: frozenset[str],
    on_end: Callable[[TaskRow, LiveTask], None],
    around: Around | None,
    on_alert: Sequence[OnAlert],
) -> Node:
    """A node that has not started. ``settings``: of tests; else as configured. Raises InvalidInput, DefinitionError."""
    about = msgspec.json.encode(_about(name, agents, codes, roles)).decode()
    keep = configuration.replies_keep_seconds
    sinks = _sinks(configuration, ports, on_alert)
    alerting = Alerting(
        sinks,
        store=store,
        ports=ports,
        retry_seconds=configuration.alerts_retry_seconds,
        retry_seconds_max=configuration.alerts_retry_seconds_max,
    )

    def make_session() -> Session:
        return Session(
            agents,
            codes,
            store=store,
            ports=ports,
            settings=settings or configuration.node_settings(),
            roles=roles,
            on_end=on_end,
            around=around,
            about=about,
            app=name,
            upkeep=Upkeep(store=store, ports=ports, replies_keep_seconds=keep),
            alerting=alerting,
        )

    node = Node(make_session)
    store.on_wake_up(node.look)
    return node


def _about(name: str, agents: tuple[Agent, ...], codes: Mapping[str, Code], roles: frozenset[str]) -> ProcessAbout:
    runs_code, hosts = "scheduler" in roles, "agents" in roles
    return ProcessAbout(
        app=name,
        roles=tuple(sorted(roles)),
        workflows=tuple(sorted(codes)) if runs_code else (),
        steps=tuple(sorted((agent.name, step) for agent in agents for step in agent.steps)) if hosts else (),
        policies=_policies(codes) if runs_code else {},
    )


def _policies(codes: Mapping[str, Code]) -> dict[str, str]:
    """Of the workflows by name, as a task's row has them. A task of one step is submitted by Python only."""
    workflows = {name: code.definition for name, code in sorted(codes.items())}
    return {
        name: msgspec.json.encode(definition.policy).decode()
        for name, definition in workflows.items()
        if isinstance(definition, Workflow)
    }


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
