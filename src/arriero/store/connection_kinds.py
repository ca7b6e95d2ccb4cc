"""Recognises the connections of users' libraries."""


def list_kinds(connection: object) -> set[str]:
    """The package and name of each of its classes: the libraries themselves may not be installed."""
    return {f"{kind.__module__.partition('.')[0]}.{kind.__name__}" for kind in type(connection).__mro__}
