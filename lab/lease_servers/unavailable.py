"""A server that this machine does not have."""


class Unavailable(Exception):
    """The server of the provider cannot be had on this machine. The message says what to install."""
