"""Tools for users' tests: hand-made attempts, and a world on a virtual clock that jumps.

async with testing.running(shop) as world:
    world.answers(charge, Receipt("r1"))
    task = await world.app.submit(fulfil(order))
    assert await task.result() == ...
"""

from .handmade import attempt, callback, current, resource, undo
from .world import Clock, UndoneStep, World, running

__all__ = ["Clock", "StepView", "UndoneStep", "World", "attempt", "callback", "current", "resource", "running", "undo"]

StepView = UndoneStep  # its name in release 0.4; `arriero.StepView` is something else
