"""The code of a task: a workflow, or one step."""

from collections.abc import Coroutine
from typing import Any

import msgspec

from ..declare.step_options import StepOptions
from ..declare.steps import Step, StepCall
from ..declare.workflows import Workflow


class OneStep(msgspec.Struct, frozen=True):
    """The arguments of a task of one step."""

    arguments: msgspec.Raw
    options: StepOptions


read_one_step = msgspec.json.Decoder(OneStep).decode


class Code:
    """The code of a task: a workflow, or one step.

    Args:
        name: as it stands in the task's row.
    """

    def __init__(self, name: str, definition: Workflow[Any, Any] | Step[Any, Any]) -> None:
        self.name = name
        self.definition = definition

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
