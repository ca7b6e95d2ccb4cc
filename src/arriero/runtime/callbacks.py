"""Makes the URLs and tokens of callbacks when an attempt begins: its recorded arguments only name the waits."""

import logging
from collections.abc import Iterable

from ..core.capabilities import CallbackToken, seal_callback
from ..declare.callbacks import CallbackAccess
from ..declare.steps import Agent
from ..errors import StoreError, Transient, UnreadableRow
from ..model import StepRow
from ..model.instants import as_datetime
from ..model.signals import label_callback, names_callback
from ..store.contract import CALLBACK_SECRET
from ..store.readable import refuse_unreadable_task
from .process_context import ProcessContext

PATH = "/v1/callbacks/"
SET_URL = "set public_url (ARRIERO_PUBLIC_URL) for the processes that run steps, like https://shop.example.com"
logger = logging.getLogger("arriero")


def warn_of_missing_url(context: ProcessContext, agents: Iterable[Agent]) -> None:
    """Log which steps take callbacks, if this process cannot make their URLs."""
    steps = [one.name for agent in agents for one in agent.steps.values() if one.signature.takes_references]
    if steps and not context.settings.public_url:
        logger.warning(
            "no attempt of step %s can begin here, because callbacks need a URL: %s", ", ".join(steps), SET_URL
        )


async def build_accesses(context: ProcessContext, step: StepRow) -> dict[str, CallbackAccess]:
    """Build the accesses to the callbacks that the arguments of a step name, by the labels of their waits.

    Raises: Transient - the store did not answer, a row of the task cannot be read, or no URL is known under which services reach
        this API. Nothing was sent.
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
        if not public_url:
            raise Transient(
                f"callback {label} needs a URL: {SET_URL}",
                code="no_public_url",
            )
        names = CallbackToken(task.task_no, task.submitted_at, task.past_count, label)
        token = seal_callback(names, secret, store.store_id)
        expires_at = None if wait.not_before is None else as_datetime(wait.not_before)
        accesses[label] = CallbackAccess(f"{public_url}{PATH}{token}", token, expires_at)
    return accesses
