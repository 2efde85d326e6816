"""A worker process that tests kill. Its jobs write what they do to a file, one line each.

``python -m tests.app.crash_child DIRECTORY LOG`` works until it is killed; with ``start`` behind, it makes a
batch and a chain, and ends.
"""

from __future__ import annotations

import os
import sys
import time

from nobroker import App, chain, current_job

MEMBERS = 200
LINKS = 20

directory, log = sys.argv[1:3]
# What a killed process wrote is in the hands of the system: no sync is needed to keep it.
app = App(directory, visibility_timeout=0.5, max_attempts=1000, fsync=False)


def write(line: str) -> None:
    """One line, whole, whoever is killed."""
    file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(file, f"{line}\n".encode())
    finally:
        os.close(file)


@app.job
def member(number: int) -> None:
    batch = current_job().batch
    assert batch is not None
    time.sleep(0.002)
    if number % 50 == 0 and number < MEMBERS:
        with batch.add():
            member.perform_later(MEMBERS + number + current_job().attempts * 1000)
    write(f"member {number}")


@app.job
def callback(name: str) -> None:
    batch = current_job().batch
    assert batch is not None
    write(f"callback {name} {current_job().id} {batch.total} {batch.failed}")


@app.job
def link(number: int) -> None:
    write(f"link {number}")


def start() -> None:
    callbacks = {f"on_{name}": callback.build(name) for name in ("success", "failure", "finish")}
    with app.batch("crash", **callbacks):
        app.perform_all_later([member.build(number) for number in range(MEMBERS)])
    chain(*[link.build(number) for number in range(LINKS)])


if __name__ == "__main__":
    if sys.argv[3:] == ["start"]:
        start()
    else:
        app.run(threads=4)
