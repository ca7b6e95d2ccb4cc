"""The code of a task: a workflow, or one step."""

from collections.abc import Coroutine, Iterator, Mapping
from typing import Any

import msgspec

from ..declare.step_options import StepOptions
from ..declare.steps import Step, StepCall
from ..declare.workflows import Workflow
from ..errors import InvalidInput
from ..model import TaskRow
from ..model.processes import FIRST_VERSION, format_code_version, read_code_version


class OneStep(msgspec.Struct, frozen=True):
    """The arguments of a task of one step."""

    arguments: msgspec.Raw
    options: StepOptions


def build_versions(codes: Mapping[str, "Code"], deployment: str, *, is_pinned: bool) -> dict[str, tuple[str, ...]]:
    """Build the versions of a process's code, as claims name them.

    Args:
        deployment: of the process; empty: it has no name.
        is_pinned: whether tasks belong to their deployment, where the workflow does not say. Raises InvalidInput if one does, and
            the deployment has no name.
    """
    found: dict[str, tuple[str, ...]] = {}
    for name, code in codes.items():
        if not isinstance(code.definition, Workflow):
            continue
        pins = is_pinned if code.definition.version_pinning is None else code.definition.version_pinning
        if pins and not deployment:
            raise InvalidInput(
                f"tasks of workflow {name} are continued only by the deployment that began them, and this process does not say"
                " its own: set ARRIERO_DEPLOYMENT, deployment in arriero.toml, or give --deployment"
            )
        plain = tuple(format_code_version(one.version) for one in code.list_versions())
        named = tuple(format_code_version(one.version, deployment) for one in code.list_versions() if deployment)
        found[name] = named + plain if pins else plain + named
    return {name: versions for name, versions in found.items() if versions != (FIRST_VERSION,)}


read_one_step = msgspec.json.Decoder(OneStep).decode


class Code:
    """The code of a task: a workflow, or one step. Of a workflow it is the newest version, and has the others.

    Args:
        name: as it stands in the task's row.
    """

    def __init__(self, name: str, definition: Workflow[Any, Any] | Step[Any, Any]) -> None:
        self.name = name
        self.definition = definition
        self.version = definition.version if isinstance(definition, Workflow) else 1
        replaced = definition.replaces if isinstance(definition, Workflow) else None
        self.older: Code | None = None if replaced is None else Code(name, replaced)

    def list_versions(self) -> "Iterator[Code]":
        """List the code of all its versions, the newest first."""
        code: Code | None = self
        while code is not None:
            yield code
            code = code.older

    def for_task(self, task: TaskRow) -> "Code | None":
        """The version that continues a task: the newest one, if it has not begun. None: it is not here."""
        number, _ = read_code_version(task.code_version)
        if task.started_at is None or number == self.version:
            return self
        return next((code for code in self.list_versions() if code.version == number), None)

    @property
    def share(self) -> int | None:
        """Its weight among the workflows of a process; None: it has no share of its own."""
        return self.definition.share if isinstance(self.definition, Workflow) else None

    def start(self, arguments: str) -> Coroutine[Any, Any, Any]:
        """The coroutine to run. Raises InvalidInput when recorded arguments do not fit the code."""
        definition = self.definition
        if isinstance(definition, Workflow):
            signature = definition.signature
            coroutine: Coroutine[Any, Any, Any] = signature.call((), signature.arguments(arguments))
            return coroutine
        return self._one_step(definition, arguments)

    @staticmethod
    async def _one_step(step: Step[Any, Any], arguments: str) -> Any:
        one = read_one_step(arguments)
        return await StepCall(step, bytes(one.arguments).decode(), one.options)

    def encode_output(self, value: Any) -> str:
        """The output as JSON text. Raises InvalidInput."""
        return self.definition.signature.encode_result(value)

    def output(self, text: str) -> Any:
        """The output as the declared type."""
        return self.definition.signature.result(text)

    def mean_same(self, recorded: str, asked: str) -> bool:
        """Returns True if two texts are the same arguments, of which another release wrote the first in another way."""
        signature = self.definition.signature
        if isinstance(self.definition, Workflow):
            return signature.mean_same(recorded, asked)
        try:
            one, other = read_one_step(recorded), read_one_step(asked)
        except msgspec.MsgspecError:
            return False
        texts = (bytes(one.arguments).decode(), bytes(other.arguments).decode())
        return one.options == other.options and signature.mean_same(*texts)
