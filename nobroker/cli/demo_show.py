"""The acts of the demo, and what each of them claims. A claim that does not hold makes the demo fail."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nobroker.cli import demo_handler
from nobroker.cli.failures import CommandError
from nobroker.cli.output import duration, plural, size
from nobroker.cli.progress import Progress
from nobroker.cli.text import escape, gist

if TYPE_CHECKING:
    from nobroker import Job, Queue

BATCH = 500  # jobs of one enqueue_many
TRIES = 3
FLAKY_EVERY, FLAKY_AT = 64, 5
BROKEN_EVERY, BROKEN_AT = 512, 9
VISIBILITY_TIMEOUT = 2.0  # seconds until the jobs of the killed worker come back
PATIENCE = 120.0  # seconds after which an act that does not end has failed
LOOK_EVERY = 0.1
EXAMPLES = 4  # shown of each kind


@dataclass(frozen=True)
class Claim:
    """Something the demo says, and whether it was so."""

    text: str
    true: bool


def standard_library() -> tuple[Path, list[str]]:
    """Return its directory and the paths of its regular files, installed packages left out, in order."""
    root = Path(sysconfig.get_path("stdlib"))
    return root, sorted(_regular_files(root))


def _regular_files(root: Path) -> Iterator[str]:
    for folder, below, names in os.walk(root):
        below[:] = [name for name in below if name not in ("site-packages", "dist-packages")]
        for name in names:
            path = os.path.join(folder, name)
            if stat.S_ISREG(os.lstat(path).st_mode) and os.access(path, os.R_OK):
                yield path


class Show:
    """One performance.

    Args:
        directory: of the queue, the workers' logs and the dump.
        name: of the queue.
        limit: take so many files at most.
        quiet: say nothing on stdout.
    """

    def __init__(self, directory: Path, name: str, limit: int | None, *, quiet: bool) -> None:
        self.directory = directory
        self.name = name
        self.limit = limit
        self.dump_path = directory / f"{name}.dump.jsonl"
        self.claims: list[Claim] = []
        self.figures: dict[str, Any] = {}
        self._quiet = quiet
        self._workers: list[subprocess.Popen[bytes]] = []
        self._root = Path()
        self._began = time.monotonic()

    # -- the acts, in order --------------------------------------------------------------------------------

    def run(self) -> None:
        """Perform all acts. What they find is in `claims` and `figures`."""
        from nobroker import Queue

        self._began = time.monotonic()
        self._root, paths = standard_library()
        paths = paths[: self.limit]
        with Queue(self.directory, self.name, visibility_timeout=VISIBILITY_TIMEOUT, keep_done=0.0) as queue:
            mark = self.directory / f"{self.name}.victim"
            self._say(f"Queue {self.name!r} in {self.directory}; two worker processes wait for it.")
            victim = self._start("1", {demo_handler.VICTIM: str(mark)})
            other = self._start("2", {demo_handler.AFTER: str(mark)})
            self._enqueue(queue, paths)
            killed = self._work_and_kill(queue, victim, mark, len(paths))
            self._end(other, "the surviving worker ended cleanly when asked to")
            self._look_at_retries(queue, killed)
            self._revive(queue)
            self._verify(queue, paths)
            self._dump(len(paths))
            self._compact(queue)
        self.figures["seconds"] = round(time.monotonic() - self._began, 1)

    def _enqueue(self, queue: Queue, paths: list[str]) -> None:
        self._say(f"Putting in {plural(len(paths), 'file')} of {self._root}, {BATCH} at a time.")
        ids: set[str] = set()
        with Progress("enqueue", len(paths)) as progress:
            for start in range(0, len(paths), BATCH):
                batch = [_payload(path, start + i) for i, path in enumerate(paths[start : start + BATCH])]
                ids.update(job.id for job in queue.enqueue_many(batch, max_attempts=TRIES))
                progress.at(start + len(batch))
        self.figures["files"] = len(paths)
        self._claim(f"every one of {plural(len(paths), 'file')} is one job", len(ids) == len(paths))

    def _work_and_kill(self, queue: Queue, victim: subprocess.Popen[bytes], mark: Path, total: int) -> str:
        killed = ""
        with Progress("hash", total, unit="files") as progress:
            for stats in self._until_idle(queue):
                progress.at(stats.done + stats.dead, f"{stats.delayed} to be retried, {stats.dead} dead")
                if not killed and mark.exists():
                    killed = mark.read_text(encoding="utf-8")
                    victim.kill()
                    victim.wait()
                    self._say(f"Worker 1 (process {victim.pid}) is killed while it has job {killed} in hand.")
        expected = -signal.SIGKILL if os.name == "posix" else 1
        self._claim(
            "one worker was killed with SIGKILL on the way", killed != "" and victim.returncode == expected
        )
        return killed

    def _look_at_retries(self, queue: Queue, killed: str) -> None:
        jobs = queue.list_jobs()
        done = [job for job in jobs if job.state == "done"]
        dead = queue.dlq()
        flaky = [job for job in done if job.payload.get("trouble") == demo_handler.FLAKY]
        returned = [job for job in done if job.attempts > 1 and "trouble" not in job.payload]
        self._say(f"{plural(len(flaky), 'job')} failed once on purpose and recovered, for example")
        self._examples(flaky)
        self._say(
            f"{plural(len(returned), 'job')} of the killed worker came back when the lease ended, for example"
        )
        self._examples(returned)
        self._say(f"{plural(len(dead), 'job')} failed {TRIES} times and are dead:")
        self._examples(dead)
        self.figures |= {"recovered": len(flaky), "returned": len(returned), "dead": len(dead)}
        flaky_there_are = _share(self.figures["files"], demo_handler.FLAKY)
        broken_there_are = _share(self.figures["files"], demo_handler.BROKEN)
        self._claim(
            f"{plural(len(flaky), 'job')} that failed once recovered at a retry",
            len(flaky) == flaky_there_are and all(job.attempts > 1 for job in flaky),
        )
        self._claim(
            f"the killed worker's {plural(len(returned), 'job')} came back and were done by the other",
            killed in {job.id for job in returned},
        )
        self._claim(
            f"{plural(len(dead), 'job')} out of tries went to the dead-letter queue, with the reason",
            len(dead) == broken_there_are
            and all(job.attempts >= TRIES and "on purpose" in (job.last_error or "") for job in dead),
        )

    def _revive(self, queue: Queue) -> None:
        dead = len(queue.dlq())
        requeued = queue.requeue_dead()
        self._say(f"The fault is repaired: {plural(requeued, 'dead job')} put back, a new worker takes them.")
        worker = self._start("3", {demo_handler.FIXED: "1"})
        with Progress("retry the dead", dead) as progress:
            for stats in self._until_idle(queue):
                progress.at(dead - stats.ready - stats.leased - stats.delayed)
        self._end(worker, "the third worker ended cleanly when asked to")
        self._claim(
            f"{plural(requeued, 'dead job')} put back were done", requeued == dead > 0 and not queue.dlq()
        )

    def _verify(self, queue: Queue, paths: list[str]) -> None:
        done = queue.list_jobs("done")
        results = {job.payload["path"]: job.result for job in done}
        exact = volume = 0
        with Progress("compare with hashlib", len(paths), unit="files") as progress:
            for number, path in enumerate(paths, 1):
                truth = demo_handler.digest(path)
                exact += results.get(path) == truth
                volume += truth["size"]
                progress.at(number)
        self.figures |= {"exact": exact, "bytes_hashed": volume}
        self._say(
            f"Compared {plural(len(paths), 'result')} ({size(volume)}) with hashlib: {exact:,} are exact."
        )
        once = len(done) == len(results) == len(paths) and queue.stats().total == len(paths)
        self._claim(f"{exact:,} of {len(paths):,} hashes are exactly those of hashlib", exact == len(paths))
        self._claim("every job is done, none twice, none is left", once)

    def _dump(self, total: int) -> None:
        from nobroker_tools.dump import dump_events

        with self.dump_path.open("w", encoding="ascii", newline="\n") as out:
            skipped = dump_events(self.directory, self.name, out, self._say)
        lines = jobs = 0
        strict = skipped == 0
        with self.dump_path.open(encoding="ascii") as file:
            for text in file:
                lines += 1
                try:
                    jobs += json.loads(text, parse_constant=_not_json).get("event") == "enqueue"
                except ValueError:
                    strict = False
        self.figures |= {"dump_lines": lines, "dump_bytes": self.dump_path.stat().st_size}
        self._say(f"Dumped the log: {plural(lines, 'line')} of JSON, {size(self.figures['dump_bytes'])}.")
        self._claim("the whole log reads as strict JSON, every job in it", strict and jobs == total)

    def _compact(self, queue: Queue) -> None:
        result = queue.compact()
        self._say(f"Compacted: {result.describe()}")
        self.figures |= {"bytes_before": result.bytes_before, "bytes_after": result.bytes_after}
        self.figures["bytes_reclaimed"] = result.bytes_reclaimed
        self._claim(f"compaction gave back {size(result.bytes_reclaimed)}", result.bytes_reclaimed > 0)
        self._claim("the check of the whole log finds nothing wrong", not list(queue.check()))

    # -- workers -------------------------------------------------------------------------------------------

    def _start(self, number: str, scene: dict[str, str]) -> subprocess.Popen[bytes]:
        words = [sys.executable, "-m", "nobroker.cli", "--dir", str(self.directory), "--queue", self.name]
        words += ["work", "nobroker.cli.demo_handler:hash_file", "--batch", "16"]
        words += ["--visibility-timeout", str(VISIBILITY_TIMEOUT), "--keep-done", "0"]
        environment = {
            **os.environ,
            **scene,
            "PYTHONPATH": os.pathsep.join(os.path.abspath(path) for path in sys.path),
            "PYTHONDONTWRITEBYTECODE": "1",  # the files that are hashed stay as they are
        }
        with (self.directory / f"{self.name}.worker-{number}.log").open("wb") as log:
            worker = subprocess.Popen(
                words, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environment
            )
        self._workers.append(worker)
        return worker

    def _end(self, worker: subprocess.Popen[bytes], claim: str) -> None:
        worker.terminate()
        try:
            code = worker.wait(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            code = None
        self._claim(claim, code == 0 or (os.name != "posix" and code is not None))

    def end_workers(self) -> None:
        """Kill what still runs: only after an act that failed is there anything."""
        for worker in self._workers:
            if worker.poll() is None:
                worker.kill()
                worker.wait()

    def _until_idle(self, queue: Queue) -> Iterator[Any]:
        """Yield the counts again and again until nobody has anything to do.

        Raises:
            CommandError: that takes too long, or all workers are gone.
        """
        deadline = time.monotonic() + PATIENCE
        while True:
            stats = queue.stats()
            yield stats
            if stats.ready + stats.delayed + stats.leased == 0:
                return
            if time.monotonic() > deadline:
                raise CommandError(f"the demo's workers did not end within {duration(PATIENCE)}: {stats}")
            if all(worker.poll() is not None for worker in self._workers):
                raise CommandError(f"all workers of the demo are gone: {self._last_words()}")
            time.sleep(LOOK_EVERY)

    def _last_words(self) -> str:
        logs = sorted(self.directory.glob(f"{self.name}.worker-*.log"))
        return "; ".join(
            f"{log.name}: {gist(log.read_text('utf-8', 'replace')) or 'nothing'}" for log in logs
        )

    # -- what is said --------------------------------------------------------------------------------------

    def _say(self, text: str) -> None:
        if not self._quiet:
            print(escape(text), flush=True)

    def _claim(self, text: str, true: bool) -> None:
        self.claims.append(Claim(text, bool(true)))

    def _examples(self, jobs: list[Job]) -> None:
        for job in jobs[:EXAMPLES]:
            why = gist(job.last_error or "") or "no error: the lease ran out"
            path = os.path.relpath(job.payload["path"], self._root)
            self._say(f"    {path}  (attempt {job.attempts} of {job.max_attempts})  {why}")
        if len(jobs) > EXAMPLES:
            self._say(f"    and {len(jobs) - EXAMPLES:,} more")

    def all_true(self) -> bool:
        return bool(self.claims) and all(claim.true for claim in self.claims)

    def summary(self) -> dict[str, Any]:
        """Return everything that was found, for `--json`."""
        claims = [{"claim": claim.text, "true": claim.true} for claim in self.claims]
        return {"ok": self.all_true(), **self.figures, "claims": claims}

    def print_summary(self, kept: bool) -> None:
        print()
        for claim in self.claims:
            print(f"{'  yes ' if claim.true else '  NO  '} {escape(claim.text)}")
        if kept:
            print(escape(f"Kept: the queue {self.name} in {self.directory}, and {self.dump_path.name}"))
        verdict = "All of it was true" if self.all_true() else "NOT all of it was true"
        print(f"\n{verdict}; {duration(self.figures.get('seconds'))}.")


def _payload(path: str, number: int) -> dict[str, Any]:
    if number % BROKEN_EVERY == BROKEN_AT:
        return {"path": path, "trouble": demo_handler.BROKEN}
    if number % FLAKY_EVERY == FLAKY_AT:
        return {"path": path, "trouble": demo_handler.FLAKY}
    return {"path": path}


def _share(total: int, trouble: str) -> int:
    return sum(_payload("", number).get("trouble") == trouble for number in range(total))


def _not_json(token: str) -> Any:
    raise ValueError(f"{token} is not JSON")
