"""The environment variables by which the demonstration reaches into the processes it starts."""

SERVICES_VARIABLE = "ARRIERO_DEMO_SERVICES"
"""Where the remote services listen; without it the shop's Agents answer themselves, with a stand-in."""
BREAK_VARIABLE = "ARRIERO_DEMO_BREAK"
"""What the shop breaks on purpose: ``refund``, or nothing."""
STORE_VARIABLE = "ARRIERO_STORE"
"""Where the tasks are kept, for every client of an App."""
