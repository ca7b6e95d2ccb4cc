"""A call value that nobody awaits: found where users turn on ``unused-awaitable``, as the README recommends."""

from arriero import Agent, Attempt, workflow

mail = Agent("mail")


@mail.step
async def send(attempt: Attempt, text: str) -> None: ...


@workflow
async def remind(text: str) -> None:
    send(text)  # refused: unused-awaitable
    send(text).options(key="again")  # refused: unused-awaitable
    await send(text)


async def main() -> None:
    remind("a")  # refused: unused-awaitable
