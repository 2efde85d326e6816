"""An application in a directory, and supervisors of it as real processes."""

from __future__ import annotations

import os
import runpy
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nobroker import Queue
from nobroker.app.scheduler import Scheduler

PATIENCE_S = 30.0
"""Nothing here takes so long, however busy the machine is, unless it is broken."""

JOBS = """
import atexit, ctypes, os, signal, subprocess, sys, threading, time
from pathlib import Path
from nobroker import App, Retry, WorkerDiedError, JobTimeoutError, current_job

app = App("data", fsync=False, visibility_timeout=60, max_attempts=3)

def note(name, text=""):
    with open(name, "a") as file:
        file.write(f"{os.getpid()} {text}\\n")

@app.job
def quick(name="quick"):
    note(name, os.getppid())

@app.job
def slow(name, seconds):
    note(name, "begun")
    end = time.monotonic() + seconds
    while time.monotonic() < end and not Path("let_go").exists():
        time.sleep(0.01)
    note(name, "ended")

@app.job(max_attempts=2)
def die(name, how):
    note(name, current_job().attempts)
    if how == "exit":
        os._exit(3)
    if how == "exit 0":
        os._exit(0)
    os.kill(os.getpid(), getattr(signal, how))
    time.sleep(60)
"""


class Trial:
    """A directory with jobs, and what runs there.

    Attributes:
        app: the application, in this process; for enqueueing.
    """

    def __init__(self, home: Path, jobs: str = "") -> None:
        self.home = home
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("NOBROKER")}
        self.env["PYTHONPATH"] = os.pathsep.join([str(home), *sys.path])
        (home / "jobs.py").write_text(JOBS + jobs)
        self.running: list[Running] = []

    def add(self, text: str) -> None:
        """More code for the module of jobs."""
        with (self.home / "jobs.py").open("a") as file:
            file.write(text)

    def later(self, job: str, *args: Any, count: int = 1, **options: Any) -> list[str]:
        """Enqueue a job, so often; the ids."""
        module = runpy.run_path(str(self.home / "jobs.py"))
        app = module["app"]
        app.path = self.home / "data"
        try:
            prepared = [module[job].set(**options).build(*args) for _ in range(count)]
            return [handle.id for handle in app.perform_all_later(prepared)]
        finally:
            app.close()

    def later_all(self, job: str, arguments: Iterable[Any]) -> None:
        """Enqueue a job once for each argument, with one write."""
        module = runpy.run_path(str(self.home / "jobs.py"))
        app = module["app"]
        app.path = self.home / "data"
        try:
            app.perform_all_later([module[job].build(argument) for argument in arguments])
        finally:
            app.close()

    def look_at_schedules(self) -> None:
        """See the recurring tasks for the first time: what falls due from now on is enqueued by who looks."""
        app = runpy.run_path(str(self.home / "jobs.py"))["app"]
        app.path = self.home / "data"
        try:
            Scheduler(app).look()
        finally:
            app.close()

    def run(self, *words: str, **env: str) -> Running:
        """``nobroker run jobs``, in a session of its own."""
        return self._start([sys.executable, "-m", "nobroker", "run", "jobs", *words], env)

    def program(self, config: str, *, before: str = "", more: str = "", **env: str) -> Running:
        """A program that runs the application as a configuration says.

        Args:
            before: lines before that.
            more: arguments of the supervisor.
        """
        lines = [
            "import logging, sys",
            "if __name__ == '__main__':",
            "    from jobs import *",
            "    from nobroker.running.config import *",
            "    logging.basicConfig(level='INFO', format='%(process)d %(message)s')",
            *(f"    {line}" for line in before.splitlines()),
            "    from nobroker.running.forking import Source",
            "    from nobroker.running.supervisor import Supervisor",
            f"    sys.exit(Supervisor(app, RunConfig({config}), source=Source(('jobs',)), {more}).run())",
        ]
        (self.home / "program.py").write_text("\n".join(lines))
        return self._start([sys.executable, "program.py"], env)

    def _start(self, command: list[str], env: dict[str, str]) -> Running:
        self.running.append(Running(self, command, env))
        return self.running[-1]

    def lines(self, name: str) -> list[list[str]]:
        """What jobs noted in a file, by words."""
        try:
            return [line.split() for line in (self.home / name).read_text().splitlines()]
        except FileNotFoundError:
            return []

    def until(self, name: str, count: int) -> list[list[str]]:
        """Wait for so many lines."""
        wait_for(lambda: len(self.lines(name)) >= count, lambda: f"{name}: {self.lines(name)}")
        return self.lines(name)

    def queue(self) -> Queue:
        return Queue(self.home / "data", fsync=False)

    def jobs(self) -> list[Any]:
        """All jobs; the store is sound."""
        with self.queue() as queue:
            assert list(queue.check()) == []
            return queue.list_jobs()

    def close(self) -> None:
        """Nothing of what ran is left."""
        for one in self.running:
            one.end_hard()


class Running:
    """A supervisor, or what was started to be one."""

    def __init__(self, trial: Trial, command: list[str], env: dict[str, str]) -> None:
        self.trial = trial
        self._log = trial.home / f"log-{len(trial.running)}"
        with self._log.open("w") as log:
            self.process = subprocess.Popen(
                command,
                cwd=trial.home,
                env={**trial.env, **env},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.pid = self.process.pid

    def log(self) -> str:
        return self._log.read_text()

    def says(self, words: str, count: int = 1) -> None:
        """Wait until the log has these words so often."""
        wait_for(lambda: self.log().count(words) >= count, self.log)

    def tell(self, number: int) -> None:
        self.process.send_signal(number)

    def end(self, number: int | None = signal.SIGTERM) -> int:
        """Send a signal; the exit code. Nothing that it started is left."""
        if number is not None:
            self.tell(number)
        try:
            code = self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(self.log()) from None
        wait_for(lambda: not self.session(), lambda: f"{self.session()}\n{self.log()}")
        return code

    def end_hard(self) -> None:
        for pid in [*self.session(), self.pid]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.process.wait()

    def session(self) -> list[int]:
        """Processes that it started, it included."""
        return [pid for pid, _, session in processes() if session == self.pid]

    def children(self) -> list[int]:
        return [pid for pid, parent, _ in processes() if parent == self.pid]

    def workers(self, count: int) -> list[int]:
        """Wait until there are so many children, and no more, and so many have said that they work."""
        self.says("started concurrency", count)
        wait_for(lambda: len(self.children()) == count, lambda: f"{self.children()}\n{self.log()}")
        return self.children()


def processes() -> Iterator[tuple[int, int, int]]:
    """pid, parent and session of all that live."""
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                words = Path("/proc", entry, "stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if words[0] not in "ZX":
                yield int(entry), int(words[1]), int(words[3])


def wait_for(true: Callable[[], bool], tell: Callable[[], str] = str, *, seconds: float = PATIENCE_S) -> None:
    """Wait until something is so."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, tell()
        time.sleep(0.02)


@contextmanager
def trial_in(home: Path, jobs: str = "") -> Iterator[Trial]:
    made = Trial(home, jobs)
    try:
        yield made
    finally:
        made.close()
