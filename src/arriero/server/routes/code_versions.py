"""Versions of code: which one still has tasks."""

from ...operations import code_versions as operations
from ..operation_routes import add_operations_of
from ..routing import RouteGroup

code_versions = RouteGroup("code-versions")
add_operations_of(code_versions, operations.LIST)
