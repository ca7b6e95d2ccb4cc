"""Processes on the store: their roles, Apps and versions."""

from ...operations import processes as operations
from ..operation_routes import add_operations_of
from ..routing import RouteGroup

processes = RouteGroup("processes")
add_operations_of(processes, operations.LIST)
