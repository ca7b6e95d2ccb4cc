"""`arriero task complete-callback` on a store in which no Scheduler runs."""

import asyncio
import json
from dataclasses import dataclass

import msgspec
from click.testing import CliRunner, Result
from runtime_world import QUICK, Machine, until

from arriero import Agent, Callback, callback, workflow
from arriero.cli.main import commands

bank = Agent("bank")
urls: list[str] = []


@dataclass
class Receipt:
    id: str


@bank.step
async def pay(done: Callback[Receipt]) -> None:
    urls.append(done.url)


@workflow
async def order() -> str:
    receipt = callback(Receipt)
    await pay(receipt)
    return (await receipt).id


async def test_an_operator_completes_a_callback_once_and_each_refusal_is_one_line(machine: Machine) -> None:
    app = machine.app([bank], [order], settings=msgspec.structs.replace(QUICK, public_url="https://shop"))
    async with app.running():
        await app.submit(order(), task_id="order-1")
        await until(lambda: bool(urls))

    async def type_(*words: str) -> Result:
        line = ("task", "complete-callback", *words, "--by", "ana", "--store", machine.url)
        return await asyncio.to_thread(CliRunner().invoke, commands, line)

    for words, says in (
        (("order-1", "receipts", "1"), "task 'order-1' has no callback 'receipts'; it has: receipt#1"),
        (("order-1", "receipt"), "Missing argument 'JSON'"),
        (("order-1", "receipt", "{"), "the value of callback receipt is not JSON"),
        (("order-1", "receipt", json.dumps("x" * 100_000)), "at most 100,000 are sent"),
    ):
        refused = await type_(*words)
        assert (refused.exit_code, refused.stdout) == (2, ""), refused.output
        assert says in " ".join(refused.stderr.split())
    assert (await type_("none", "receipt", "1")).exit_code == 4
    done = await type_("order-1", "receipt", '{"id": "r-1"}')
    assert (done.exit_code, done.stdout) == (0, "callback receipt of task order-1 is completed\n"), done.output
    assert "no Scheduler" in done.stderr
    again = await type_("order-1", "receipt", '{"id": "r-1"}', "--json")
    assert json.loads(again.stdout) == {"id": "order-1", "name": "receipt", "created": False}
    other = await type_("order-1", "receipt", '{"id": "r-2"}')
    assert (other.exit_code, other.stdout) == (3, "")
    assert "the callback is refused: its task has not read the value that was sent before" in other.stderr
    assert urls[0].rpartition(".")[2] not in done.output + other.output
