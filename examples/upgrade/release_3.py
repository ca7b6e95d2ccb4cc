"""The third release: the old branch was deleted, and the call of `patched` with it. Deployed after the first, it would be a bad one."""

from arriero import App, workflow
from examples.upgrade.services import approved, bank, charge, reserve, ship, stock


@workflow
async def fulfil(number: int) -> str:
    """Fulfil an order."""
    receipt = await charge(number)
    await reserve(number)
    await approved.wait()
    await ship(number)
    return receipt


app = App("upgrade", agents=[bank, stock], workflows=[fulfil])
