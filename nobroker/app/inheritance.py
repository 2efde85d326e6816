"""Threads that a job starts know that job.

Tasks inherit context variables by themselves, threads do not. So in processes that run jobs, starting a
thread and submitting to a `ThreadPoolExecutor` hand the caller's job on. Where no job runs, they do as
always. The threads of a pool are shared: there each submitted call has the job of its own caller.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import wraps
from typing import Any, Final

from nobroker.app.context import JobContext, _current

_lock: Final = threading.Lock()
_hooked: Final[list[bool]] = []


def hand_on() -> None:
    """Begin with it, in this process; again does nothing."""
    if _hooked:
        return
    with _lock:
        if not _hooked:
            threading.Thread.start = _starting(threading.Thread.start)  # type: ignore[method-assign,assignment]
            ThreadPoolExecutor.submit = _submitting(ThreadPoolExecutor.submit)  # type: ignore[method-assign]
            _hooked.append(True)


def _starting(start: Callable[[threading.Thread], None]) -> Callable[[threading.Thread], None]:
    @wraps(start)
    def start_with_job(thread: threading.Thread) -> None:
        job = _current.get()
        # The threads of multiprocessing's pools are shared, too, and told apart only by their class.
        if job is not None and type(thread).__module__ != "multiprocessing.dummy":
            run = thread.run

            def run_with_job() -> None:
                del thread.run  # it refers to the thread, which refers to it
                _current.set(job)
                run()

            thread.run = run_with_job  # type: ignore[method-assign]
            try:
                start(thread)
            except BaseException:
                thread.run = run  # type: ignore[method-assign]
                raise
        else:
            start(thread)

    return start_with_job


def _submitting(submit: Callable[..., Future[Any]]) -> Callable[..., Future[Any]]:
    @wraps(submit)
    def submit_with_job(
        self: ThreadPoolExecutor, fn: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> Future[Any]:
        job = _current.get()
        if job is None:
            return submit(self, fn, *args, **kwargs)
        token = _current.set(None)  # a thread that the pool starts now is not this job's alone
        try:
            return submit(self, _with_job, job, fn, *args, **kwargs)
        finally:
            _current.reset(token)

    return submit_with_job


def _with_job(job: JobContext, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    token = _current.set(job)
    try:
        return fn(*args, **kwargs)
    finally:
        _current.reset(token)
