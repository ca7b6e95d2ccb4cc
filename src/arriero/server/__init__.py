"""The HTTP API: routes over the client Session. No rule of tasks lives here. Needs the extra ``server``."""

from .application import build_application

__all__ = ["build_application"]
