"""The worker of the demo, with breakers that open after 5 calls and close within seconds, so that a test is short."""

from arriero import Agent, Breaker
from arriero.cli.main import main
from examples.orders.shop import payments, shipping, stock

if __name__ == "__main__":
    for agent in (payments, stock, shipping):
        quick = Agent(agent.name, breaker=Breaker(minimum=5, cool_off=1, ramp=2))
        agent.breaker, agent.breaker_text = quick.breaker, quick.breaker_text
    main()
