"""Waits for the disk on behalf of all slots, so that no handler has to wait for it."""

from __future__ import annotations

import threading
from queue import Empty

from nobroker.errors import NobrokerError, QueueClosedError
from nobroker.mailbox import Mailbox
from nobroker.worker import facts
from nobroker.worker.run import UNDURABLE_LIMIT, Run


class Durability:
    """One thread. Acks recorded while it syncs share the next sync; only durable ones are counted."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._tickets: Mailbox[tuple[int, int] | None] = Mailbox()
        self._thread = threading.Thread(target=self._main, name="nobroker-durability", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def expect(self, ticket: int, count: int) -> None:
        """Count `count` acks once `ticket` is on disk."""
        with self._run.changed:
            self._run.undurable += count
        self._tickets.put((ticket, count))

    def make_room(self) -> None:
        """Wait while too many acks wait for the disk."""
        run = self._run
        if run.undurable >= UNDURABLE_LIMIT:
            with run.changed:
                run.changed.wait_for(lambda: run.undurable < UNDURABLE_LIMIT or run.abandoned)

    def close(self) -> None:
        """Return when everything expected is on disk, or known not to be."""
        self._tickets.put(None)
        if self._thread.ident is not None:
            self._thread.join()

    def _main(self) -> None:
        open_ = True
        while open_:
            found = [self._tickets.get()]
            try:
                while True:
                    found.append(self._tickets.take())
            except Empty:
                pass  # that was all there is
            open_ = None not in found
            expected = [entry for entry in found if entry is not None]
            if expected:
                self._await(max(ticket for ticket, _ in expected), sum(count for _, count in expected))

    def _await(self, ticket: int, count: int) -> None:
        durable = 0
        try:
            self._run.queue._wait_durable(ticket)
            durable = count
        except QueueClosedError as error:
            facts.not_durable(count, error)
        except NobrokerError as error:  # a failed sync is final: the queue says so to every verb
            facts.not_durable(count, error)
            self._run.fail(error)
        except BaseException as error:
            self._run.fail(error)
        with self._run.changed:
            self._run.undurable -= count
            self._run.stats.succeeded += durable
            self._run.changed.notify_all()
