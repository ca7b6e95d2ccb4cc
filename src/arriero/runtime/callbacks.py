"""Makes the URLs and tokens of callbacks when an attempt begins: its recorded arguments only name the waits.

A process that does not know ``public_url`` begins no attempt of such steps. Others take their requests.
"""

import logging
from collections.abc import Iterable

from ..core.capabilities import CallbackToken, seal_callback
from ..declare.callbacks import CallbackAccess
from ..declare.steps import Agent
from ..errors import StoreError, Transient, UnreadableRow
from ..model import StepRow
from ..model.instants import as_datetime
from ..model.processes import SET_PUBLIC_URL
from ..model.signals import label_callback, names_callback
from ..store.contract import CALLBACK_SECRET
from ..store.readable import refuse_unreadable_task
from .process_context import ProcessContext

PATH = "/v1/callbacks/"
logger = logging.getLogger("arriero")


def warn_of_missing_url(context: ProcessContext, agents: Iterable[Agent]) -> None:
    """Log which steps of the Agents this process does not begin, because it cannot make the URLs of their callbacks."""
    if steps := list_steps_without_url(agents, context.settings.public_url):
        names = ", ".join(sorted({step for _, step in steps}))
        logger.warning("no attempt of step %s begins here, because callbacks need a URL: %s", names, SET_PUBLIC_URL)


def list_steps_without_url(agents: Iterable[Agent], public_url: str) -> list[tuple[str, str]]:
    """List the steps, as Agent and name, that a process does not begin: they take callbacks, and it knows no URL for these."""
    steps = [one for agent in agents for one in agent.steps.values()]
    for one in steps:
        one.signature.resolve_if_defined()
    return [] if public_url else [(one.agent.name, one.name) for one in steps if one.signature.takes_references]


async def build_accesses(context: ProcessContext, step: StepRow) -> dict[str, CallbackAccess]:
    """Build the accesses to the callbacks that the arguments of a step name, by the labels of their waits.

    Raises: Transient - the store did not answer, or a row of the task cannot be read. Nothing was sent.
    """
    store, public_url = context.store, context.settings.public_url
    try:
        secret, loaded = await store.read_secret(CALLBACK_SECRET), await store.load(step.task_no)
    except StoreError as error:
        raise Transient(f"the store did not answer: {error}", code="no_store") from error
    accesses: dict[str, CallbackAccess] = {}
    if loaded is None:
        return accesses
    try:
        refuse_unreadable_task(loaded)
    except UnreadableRow as error:
        raise Transient(str(error), code="unreadable") from error
    task = loaded.task
    for wait in loaded.life:
        label = label_callback(wait)
        if not label or not names_callback(step.arguments, label):
            continue
        names = CallbackToken(task.task_no, task.submitted_at, task.past_count, label)
        token = seal_callback(names, secret, store.store_id)
        expires_at = None if wait.not_before is None else as_datetime(wait.not_before)
        accesses[label] = CallbackAccess(f"{public_url}{PATH}{token}", token, expires_at)
    return accesses
