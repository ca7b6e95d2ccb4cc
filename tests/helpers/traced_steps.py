"""A step that runs in a child process and tells what it knows of its trace."""

from opentelemetry import trace

from arriero import Agent, Attempt, workflow

printer = Agent("printer")


@printer.step(run_in="process", complete_within=20, effect_free=True)
def tell_trace(attempt: Attempt, order: str) -> list[str]:
    span = trace.get_current_span().get_span_context()
    return [attempt.headers["traceparent"], f"{span.trace_id:032x}-{span.span_id:016x}"]


@workflow
async def tell(order: str) -> list[str]:
    return await tell_trace(order)
