"""A process is killed after it has sent a request to a program: the request comes again under the same key."""

import asyncio
import shutil
import signal
from contextlib import closing
from pathlib import Path
from typing import Any

import pushing_shop
import pytest
from cli_calls import Run, arriero
from pushed_program import Answer, program
from runtime_world import Machine, until, within

from arriero import App

pytestmark = pytest.mark.acceptance


@pytest.mark.parametrize("first", [b"", (202, {}, b"")], ids=["before the answer", "after a 202"])
async def test_a_kill_after_the_call_keeps_the_idempotency_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: Answer
) -> None:
    machine = Machine(tmp_path / "store.db")
    shutil.copy(pushing_shop.__file__, tmp_path)
    async with program() as called:
        monkeypatch.setenv("ARRIERO_STORE", machine.url)
        monkeypatch.setenv("PROGRAM_URL", called.url)
        called.answers = [first, (200, {}, {"number": "B-1"})]
        is_killed = asyncio.Event()

        async def wait_for_the_kill(said: dict[str, Any]) -> None:
            if first == b"" and len(called.requests) == 1:
                await is_killed.wait()

        called.meanwhile = wait_for_the_kill
        made = await asyncio.to_thread(
            arriero,
            tmp_path,
            "submit",
            "pushing_shop:app",
            "ship",
            "--task-id",
            "order-1",
            "--arguments",
            '{"parcel": "P-1"}',
        )
        assert made.returncode == 0, made.stderr
        with closing(Run(tmp_path, target="pushing_shop:app")) as killed:
            await until(lambda: called.requests)
            killed.signal(signal.SIGKILL)
            await asyncio.to_thread(killed.ended)
            is_killed.set()
        with closing(Run(tmp_path, target="pushing_shop:app")):
            async with App(
                "pushing", workflows=[pushing_shop.ship], agents=[pushing_shop.shipping], store=machine.url
            ) as app:
                assert await within(app.task("order-1").result()) == "B-1"
        assert [called.read(number)["attempt"] for number in range(2)] == [1, 1]
        assert len({headers["idempotency-key"] for headers, _ in called.requests}) == 1
        assert len({called.read(number)["capability"] for number in range(2)}) == 2
    await machine.check(complete=False)
