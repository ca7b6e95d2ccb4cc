"""The HTTP API: routes over the client Session. No rule of tasks lives here. Needs the extra ``server``."""

from .application import mount
from .calls import Caller
from .routing import GateLimits

__all__ = ["Caller", "GateLimits", "mount"]
