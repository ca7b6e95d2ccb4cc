"""An App whose workflow asks operators, on a store that the command line reaches too."""

from dataclasses import dataclass

from arriero import App, ask, workflow


@dataclass
class Decision:
    approved: bool
    note: str = ""


@workflow
async def pay_out(euros: int) -> str:
    decision = await ask(
        f"Pay out {euros} EUR?", Decision, of="finance", within=3_600, operators=2 if euros > 9_000 else 1
    )
    return f"{decision.approved} {decision.note}"


@workflow
async def name_it() -> str:
    return await ask("Its name?", str, of="legal")


app = App("shop", workflows=[pay_out, name_it])  # for the command line, which names the store


def open_app(url: str) -> App:
    return App("shop", workflows=[pay_out, name_it], store=url)


async def plant(url: str, named: str = "named") -> None:
    """Bring tasks into the store whose questions are open. ``named``: the id of the one that asks for a name."""
    shop = open_app(url)
    async with shop.running():
        for task_id, work in (("small", pay_out(90)), ("large", pay_out(10_000)), (named, name_it())):
            await shop.submit(work, task_id=task_id, reply_to="desk")
            async for status in shop.replies("desk"):
                if status.kind == "asked":
                    break
