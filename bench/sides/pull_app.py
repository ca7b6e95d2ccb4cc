"""The App of `pull`, whose Agent is a program of its own; `arriero run pull_app:app` serves it."""

from arriero import Agent, App, Attempt, workflow

outside = Agent("outside")


@outside.step(remote=True)
def echo(attempt: Attempt, payload: str) -> str: ...  # type: ignore[empty-body]


@workflow
async def once(payload: str) -> str:
    return await echo(payload)


@workflow
async def three(payload: str) -> str:
    await echo(payload)
    await echo(payload)
    return await echo(payload)


app = App("bench", agents=[outside], workflows=[once, three])
