"""How to install an extra. arriero is on no package index, so no command installs it from there."""


def describe_install(extra: str) -> str:
    """The command that installs an extra, for an error."""
    return f"run `pip install '.[{extra}]'` in a clone of arriero"
