"""The version, in one place: the package, the build and the command line read it from here."""

__version__ = "0.2.0"
