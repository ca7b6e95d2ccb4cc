"""The version of this release, for code that may not import the package as a whole."""

__version__ = "0.6.0"
