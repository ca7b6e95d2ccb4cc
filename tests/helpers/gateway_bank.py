"""The App whose gateways the tests start as processes: its only Agent is a program outside of Python."""

from arriero import Agent, App, Attempt, Supervision, workflow

bank = Agent("bank")


@bank.step(remote=True, complete_within=30, supervision=Supervision(attempts=3))
def pay(attempt: Attempt, cents: int) -> int: ...  # type: ignore[empty-body]


@workflow
async def buy(cents: int) -> int:
    return await pay(cents)


app = App("bank", agents=[bank], workflows=[buy])
