"""One text for errors that name an extra: arriero is on no package index, so no command installs it from there."""


def describe_install(extra: str) -> str:
    """Returns the command that installs an extra, for an error."""
    return f"run `pip install '.[{extra}]'` in a clone of arriero"
