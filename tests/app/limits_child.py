"""Jobs with keys that say when they begin and end: for `nobroker run tests.app.limits_child`.

``$LIMITS_DIR`` is where the queue and the log are. A line of the log is one write, whole, whoever is killed:
``begin|end KEY JOB ATTEMPT MOMENT``. A process that takes jobs has a file ``up-PID`` there.
"""

from __future__ import annotations

import os
import time

from nobroker import App, current_job

LIMIT = 2
KEYS = 2
JOBS = 40

directory = os.environ["LIMITS_DIR"]
# What a killed process wrote is in the hands of the system: no sync is needed to keep it.
app = App(f"{directory}/jobs", visibility_timeout=1.0, max_attempts=100, fsync=False)


def write(word: str, key: str) -> None:
    job = current_job()
    line = f"{word} {key} {job.id} {job.attempts} {time.monotonic_ns()}\n"
    file = os.open(f"{directory}/log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(file, line.encode())
    finally:
        os.close(file)


@app.on_worker_start
def up() -> None:
    open(f"{directory}/up-{os.getpid()}", "x").close()


@app.job(concurrency_limit=LIMIT, concurrency_key=lambda key, number: key)
def keyed(key: str, number: int) -> None:
    write("begin", key)
    time.sleep(0.01)
    write("end", key)


def start() -> None:
    app.perform_all_later([keyed.build(f"key {number % KEYS}", number) for number in range(JOBS)])
