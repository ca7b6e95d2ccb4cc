"""Questions to operators: how the code of a workflow asks, with a typed form, and waits for the answer."""

from functools import lru_cache
from typing import Any, TypeVar, cast

import msgspec

from ..errors import InvalidInput
from ..model.commands import PERSONS_MAX
from ..model.policies import Duration, check_seconds
from ..model.questions import AskedQuestion
from ..model.signals import name_wait
from ..payloads.codec import recordable_text
from ..payloads.pydantic_models import is_model
from .declared import find_run
from .signals import Wait, build_timeout, check_signal_name
from .signature import ValueType

T = TypeVar("T")
_NO_ANSWER: Any = object()
FORM_BYTES_MAX = 20_000  # of the JSON Schema of a form
QUESTION_CHARACTERS_MAX = 2_000


async def ask(
    question: str,
    form: type[T],
    *,
    of: str = "operators",
    within: Duration | None = None,
    otherwise: T = _NO_ANSWER,
    operators: int = 1,
) -> T:
    """Ask operators, in the code of a workflow, and wait for their answer.

    Operators see it in ``arriero question list`` and answer it by ``arriero task answer``. Its alert is open meanwhile.

    Args:
        question: for operators, up to 2,000 characters. A release may word it in another way while tasks wait.
        form: the type of the answer.
        of: who is asked, such as a team; 1 to 255 characters without ``#``. Alerts and lists name it.
        within: seconds or timedelta, more than 0; None waits as long as it takes.
        otherwise: the answer if none came within that time; not given: ``SignalTimeout`` then.
        operators: number of operators who must give the same answer, 1 to 10.
    Raises: SignalTimeout - no answer was given within that time. If it leaves the code, the task is undone.
        InvalidInput - an argument is unfit; that holds the task.
    """
    run = find_run("arriero.ask", "nothing: only a workflow waits for an answer")
    what = f"question to {of}"
    name = name_wait("question", check_signal_name(of, "question"))
    if not isinstance(question, str) or not 0 < len(question.strip()) <= QUESTION_CHARACTERS_MAX:
        raise InvalidInput(f"{what}: its text must have 1 to {QUESTION_CHARACTERS_MAX:,} characters")
    if isinstance(operators, bool) or not isinstance(operators, int) or not 1 <= operators <= PERSONS_MAX:
        raise InvalidInput(f"{what}: operators is {operators!r}; it must be a whole number from 1 to {PERSONS_MAX}")
    value_type: ValueType[T] = _build_form(cast(Any, form), what)
    if otherwise is not _NO_ANSWER:
        otherwise = value_type.read(value_type.encode(otherwise))
    limit = None if within is None else check_seconds(within, "within", at_least=0.001)
    asked = AskedQuestion(recordable_text(question.strip()), describe_form(cast(Any, form)), operators)

    def end_in_time() -> Any:
        return build_timeout(what, limit, "was not answered") if otherwise is _NO_ANSWER else otherwise

    answer: T = await run.open_wait(
        Wait(name, msgspec.json.encode(asked).decode(), limit, value_type.read, end_in_time)
    )
    return answer


@lru_cache(maxsize=256)
def _build_form(form: Any, what: str) -> ValueType[Any]:
    return ValueType(form, what)


@lru_cache(maxsize=256)
def describe_form(form: Any) -> msgspec.Raw:
    """The JSON Schema of a form, for those who show it; of a type that has none, or a large one, the schema of any value."""
    try:
        schema = msgspec.json.encode(form.model_json_schema() if is_model(form) else msgspec.json.schema(form))
    except TypeError:
        return msgspec.Raw(b"{}")
    return msgspec.Raw(schema if len(schema) <= FORM_BYTES_MAX else b"{}")
