"""The question before something is deleted for good."""

from __future__ import annotations

import sys

import click

from nobroker.cli.failures import CommandError
from nobroker.cli.text import escape


def confirm(question: str, yes: bool) -> None:
    """Ask, on stderr, unless `yes` answers already.

    Raises:
        CommandError: the answer was no.
    """
    if yes:
        return
    try:
        agreed = click.confirm(escape(question), err=True)
    finally:
        if not sys.stdin.isatty():
            click.echo(err=True)  # nobody typed the line break that ends the question
    if not agreed:
        raise CommandError("not confirmed, nothing was changed")
