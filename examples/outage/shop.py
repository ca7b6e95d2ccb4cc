"""A shop that charges by two regions of one provider, and forwards orders to merchants through a gateway with limits.

This is all that a user would write. The values of the breaker are small, so that the example takes seconds and not minutes.
"""

from __future__ import annotations

from arriero import Agent, App, Attempt, Breaker, Concurrent, Retry, workflow

from .services import Gateway, Order, Provider, Region

CONCURRENT, OF_MERCHANT = 6, 2
BREAKER = Breaker(failure_rate=0.35, minimum=15, window=2, cool_off=0.8, ramp=1.5)

provider = Provider()
region = Region("payments", provider)
region_eu = Region("payments-eu", provider)
gateway_service = Gateway()

payments = Agent("payments", max_in_flight=20, breaker=BREAKER)
payments_eu = Agent("payments-eu", provides=payments, max_in_flight=20, breaker=BREAKER)


# Interchangeable: both regions know each other's keys. So an attempt that failed may be repeated in the other one.
@payments.step(interchangeable=True, retry=Retry(tries=4, delay=0.2))
async def charge(attempt: Attempt, order: Order) -> str:
    return await region.charge(attempt.idempotency_key, order)


@payments_eu.step(name="charge")
async def charge_eu(attempt: Attempt, order: Order) -> str:
    return await region_eu.charge(attempt.idempotency_key, order)


gateway = Agent(
    "gateway",
    max_in_flight=20,
    limits=[Concurrent(CONCURRENT), Concurrent(OF_MERCHANT, key=lambda order: order.merchant, name="of merchant")],
)


@gateway.step
async def forward(attempt: Attempt, order: Order) -> None:
    await gateway_service.forward(attempt.idempotency_key, order)


@workflow
async def sell(order: Order) -> str:
    return await charge(order)  # the step of the base Agent; arriero chooses the Agent


@workflow
async def deliver(order: Order) -> None:
    await forward(order)


app = App("outage", agents=[payments, payments_eu, gateway], workflows=[sell, deliver])
