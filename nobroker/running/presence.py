"""What stands beside a `Service` so that others see it: its entry in the registry, systemd, its title.

One thread looks at the service about once a second, and tells what it sees. It takes nothing from the jobs:
what runs now is read from where the worker has it anyway.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import Empty
from typing import TYPE_CHECKING, Final

from nobroker.app.envelope import name_in
from nobroker.clock import SystemClock
from nobroker.job import Job
from nobroker.lanes import Lanes
from nobroker.mailbox import Mailbox
from nobroker.running import notify, titles
from nobroker.running.info import CurrentJob
from nobroker.running.registry import Registration

if TYPE_CHECKING:
    from nobroker.app.serving import Service

LOOK_S: Final = 1.0

_log = logging.getLogger("nobroker.running")


class Presence:
    """One service, as others see it.

    Args:
        service: the service.
        supervisor: the id of the process that looks after this one, and speaks for all; None: this one speaks
            for itself.
        interval: seconds between two signs of life.
    """

    def __init__(self, service: Service, *, supervisor: str | None = None, interval: float = 5.0) -> None:
        self._service = service
        self._supervisor = supervisor
        self._interval = interval
        self._bell: Mailbox[Callable[[], None] | None] = Mailbox()
        self._beaten = 0.0
        self._state = "starting"
        self._title: str | None = None
        self._status = ""
        self._watched = None if supervisor is not None else notify.watchdog_interval()

    @contextmanager
    def beside(self) -> Iterator[None]:
        """Be seen, as long as this lasts."""
        worker = self._service.worker
        with self._on_toggle():  # first: whoever sees the process may send it the signal
            self._registration = Registration(
                self._service.app.queue,
                "worker",
                supervisor=self._supervisor,
                queues=worker.lanes.names if isinstance(worker.lanes, Lanes) else worker.lanes or ("*",),
                threads=worker.concurrency,
                interval=self._interval,
            )
            self._title = titles.title()
            thread = threading.Thread(target=self._work, name="nobroker-presence", daemon=True)
            try:
                self._look(self._service.state)
                if self._supervisor is None:
                    notify.ready()
                thread.start()
                yield
            finally:
                self._bell.put(None)
                if thread.ident is not None:
                    thread.join()
                self._leave()

    def _leave(self) -> None:
        if self._supervisor is None and self._state != "stopping":
            notify.stopping()
        if self._title is not None:
            titles.set_title(self._title)
        self._service.meter.end_toggled()
        self._registration.close()

    # -- the thread

    def _work(self) -> None:
        every = min(LOOK_S, self._interval)
        if self._watched is not None:
            every = min(every, self._watched / 3)
        while True:
            try:
                asked = self._bell.get(timeout=every)
            except Empty:
                asked = self._see
            if asked is None:
                return
            try:
                asked()
            except Exception:  # it is no part of the work: it must not end, nor end anything
                _log.exception("event=presence.failed")

    def _see(self) -> None:
        state = self._service.state
        if state != self._state or time.monotonic() - self._beaten >= self._interval:
            self._look(state)
        if self._watched is not None:
            self._service.worker.running()  # waits for ever where the worker is stuck; then systemd acts
            notify.watchdog()

    def _look(self, state: str) -> None:
        if self._supervisor is None and state == "stopping" and self._state != "stopping":
            notify.stopping()
        self._state, self._beaten = state, time.monotonic()
        jobs = current_jobs(self._service.worker.running())
        finished, failed = self._service.counts()
        self._registration.update(
            state=state,
            jobs=jobs,
            finished=finished,
            failed=failed,
            recycling=self._service.recycling,
            waits=self._service.meter.waits(),
        )
        self._registration.beat()
        self._say(f"{state}, {len(jobs)} of {self._service.worker.concurrency} jobs", finished, failed)

    def _say(self, doing: str, finished: int, failed: int) -> None:
        if self._title is not None:
            titles.set_title(f"nobroker: {','.join(self._registration.info.queues)[:80]} ({doing})")
        if (
            self._supervisor is None
            and (said := f"{doing}; {finished} ended, {failed} failed") != self._status
        ):
            self._status = said
            notify.status(said)

    # -- signals

    @contextmanager
    def _on_toggle(self) -> Iterator[None]:
        """SIGUSR2 begins or ends the recording of job metrics. Only the main thread may have handlers."""
        number = getattr(signal, "SIGUSR2", None)
        in_main = threading.current_thread() is threading.main_thread()
        if number is None or not in_main or not self._service.worker.handle_signals:
            yield
            return
        before = signal.signal(number, self._toggle)
        try:
            yield
        finally:
            signal.signal(number, signal.SIG_DFL if before is None else before)

    def _toggle(self, *_: object) -> None:
        self._bell.put(self._service.toggle_job_metrics)


def current_jobs(running: list[tuple[Job, float]]) -> tuple[CurrentJob, ...]:
    """Running jobs as they are shown.

    Args:
        running: jobs, each with the seconds for which it has run.
    """
    now = SystemClock().wall_us() / 1e6
    return tuple(
        CurrentJob(
            id=job.id,
            job_class=name_in(job.payload) or "?",
            queue=job.lane,
            started_at=now - max(0.0, seconds),
        )
        for job, seconds in running
    )
