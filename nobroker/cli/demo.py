"""`nobroker demo`: real work through a durable queue, a worker killed and jobs failing, all verified."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import click

from nobroker.cli.command import command
from nobroker.cli.failures import DONE, FAILED, CommandError
from nobroker.cli.settings import Settings

QUEUE = "demo"


@command("demo", "nobroker demo", "nobroker --dir ./demo-jobs demo            # keeps the queue and its dump")
@click.option(
    "--files", type=click.IntRange(min=100), metavar="N", help="Only so many files.  [default: all there are]"
)
def cli(settings: Settings, files: int | None) -> int:
    """Hash every file of this Python's standard library through a queue, and prove that nothing was lost.

    Two worker processes compute size and SHA-256 of each file; one of them is killed with SIGKILL on the way,
    and some jobs fail on purpose. The dead are tried again, every result is compared with hashlib, the log is
    dumped as JSON and compacted. Exit code 0: all of it was true. Takes less than a minute.
    """
    from nobroker.cli import output
    from nobroker.cli.demo_show import Show

    kept = settings.given_dir is not None
    directory = settings.dir if kept else tempfile.mkdtemp(prefix="nobroker-demo-")
    name = settings.given_queue or QUEUE
    if kept:
        _must_be_new(Settings(given_dir=directory), name)
        os.makedirs(directory, exist_ok=True)
    show = Show(Path(directory), name, files, quiet=settings.json)
    try:
        show.run()
    finally:
        show.end_workers()
        if not kept:
            shutil.rmtree(directory)
    if settings.json:
        output.document(show.summary())
    else:
        show.print_summary(kept)
    return DONE if show.all_true() else FAILED


def _must_be_new(settings: Settings, name: str) -> None:
    if settings.exists(name):
        raise CommandError(
            f"there is a queue {name!r} in {settings.dir!r} already;"
            f" choose another directory, or delete it: nobroker --dir {settings.dir} drop {name}"
        )
