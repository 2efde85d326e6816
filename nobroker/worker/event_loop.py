"""The one event loop of a run, in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

from nobroker.worker.outcome import Outcome

_LOOP_CHECK_S = 1.0


class LoopThread:
    """Runs coroutines of handlers; `on_death` is told when the loop itself is ended by an error."""

    def __init__(self, on_death: Callable[[BaseException], None]) -> None:
        self._on_death = on_death
        self._ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._quit: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._main, name="nobroker-event-loop", daemon=True)
        self._thread.start()
        self._ready.wait()

    def run(self, work: Any) -> Outcome:
        if self._loop is None:
            work.close()
            raise RuntimeError("the event loop for async handlers could not start; see the error before")
        try:
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError:
            work.close()
            raise
        while True:
            try:
                outcome: Outcome = future.result(timeout=_LOOP_CHECK_S)
            except TimeoutError:
                if not self._thread.is_alive():
                    raise RuntimeError("the event loop ended under this handler") from None
            else:
                return outcome

    def close(self, *, wait: bool) -> None:
        if self._loop is not None and self._quit is not None and self._thread.is_alive():
            try:
                self._loop.call_soon_threadsafe(self._quit.set)
            except RuntimeError:
                return  # it closed in this moment
            if wait:
                self._thread.join()

    def _main(self) -> None:
        try:
            with asyncio.Runner() as runner:
                try:
                    runner.run(self._serve())
                except BaseException as error:  # an exit or interrupt of a handler's own task
                    self._on_death(error)
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        self._quit = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._ready.set()
        await self._quit.wait()
