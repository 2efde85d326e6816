"""Waiting for work without polling: a flag in the control page, a FIFO, and a waker for the threads of one
handle.

Invariants
- A waiter opens the FIFO, sets the flag, then looks, then sleeps; a producer appends, then looks at the flag.
  So none is missed.
- One byte wakes one waiter. Whoever wakes sets the flag again, so the others are still reachable. One that is
  killed first leaves them unreachable until they look by themselves, which they do each `LONGEST_WAIT_S`.
- Nothing here decides anything: a lost or a needless wake-up costs time only. Where there is no FIFO,
  waiting polls.
"""

import os
import select
import threading
from itertools import chain

from nobroker_mmap import files, locking

POLL_S = 0.02
LONGEST_WAIT_S = 1.0


class Waiters:
    """The waiting side of one handle; any number of threads may wait at once."""

    def __init__(self, path: str, *, poll_only: bool = False) -> None:
        self._path = path
        self._poll_only = poll_only
        self._fd: int | None = None
        self._write_fd: int | None = None
        self._fifo = hasattr(select, "poll") and not poll_only
        self._mutex = threading.Lock()
        self._wakers: set[tuple[int, int]] = set()  # pipes: who waits reads, who wakes writes
        self._condition = threading.Condition()
        self._generation = 0
        self._closed = False

    def _descriptor(self) -> int | None:
        with self._mutex:
            if self._fd is None and self._fifo and not self._closed:
                if files.make_fifo(self._path):
                    self._fd = files.open_fifo(self._path, write_only=False)
                self._fifo = self._fd is not None
            return self._fd

    def ticket(self) -> int:
        """For `wait`; from here on `send` and `wake_local` reach whoever has it."""
        self._descriptor()
        return self._generation

    def wait(self, timeout_s: float, ticket: int | None = None) -> bool:
        """Sleep until woken or for a time; True when woken, as far as is known.

        With a ticket, what woke since it was given counts.
        """
        if self._closed or (ticket is not None and ticket != self._generation):
            return True
        fd = self._descriptor()
        timeout_s = min(max(timeout_s, 0.0), LONGEST_WAIT_S)
        if fd is None:
            return self._wait_polling(min(timeout_s, POLL_S), ticket)
        pipe = receive, send = os.pipe()
        with self._mutex:
            self._wakers.add(pipe)
            missed = self._closed or (ticket is not None and ticket != self._generation)
        try:
            return missed or self._wait_on(fd, receive, locking.Deadline(timeout_s))
        finally:
            with self._mutex:
                self._wakers.discard(pipe)
                os.close(receive)
                os.close(send)
                if self._closed:
                    self._close_idle()

    @staticmethod
    def _wait_on(fifo: int, local: int, deadline: locking.Deadline) -> bool:
        poll = select.poll()
        poll.register(fifo, select.POLLIN)
        poll.register(local, select.POLLIN)
        while True:
            left = deadline.left()
            ready = dict(poll.poll(left * 1000))
            if local in ready:
                return True
            if fifo in ready:
                try:
                    os.read(fifo, 1)
                    return True
                except BlockingIOError:  # another waiter was quicker
                    pass
            if not left:
                return False

    def _wait_polling(self, timeout_s: float, ticket: int | None) -> bool:
        with self._condition:
            seen = self._generation if ticket is None else ticket
            return self._condition.wait_for(lambda: self._closed or self._generation != seen, timeout_s)

    def send(self) -> None:
        """Wake one waiter of any process. A handle that is closed meanwhile wakes nobody."""
        with self._mutex:
            if not self._closed:
                self._send()

    def _send(self) -> None:
        while True:
            if self._write_fd is None:
                self._write_fd = files.open_fifo(self._path, write_only=True)
                if self._write_fd is None:  # nobody waits on the FIFO now
                    return
            try:
                os.write(self._write_fd, b"\0")
            except BlockingIOError:  # full: as many wake-ups are on their way as anybody could need
                return
            except BrokenPipeError:  # the last waiter has gone; others may use another FIFO
                os.close(self._write_fd)
                self._write_fd = None
            else:
                return

    def wake_local(self) -> None:
        """Wake all waiters of this handle."""
        with self._mutex:
            self._wake_all()

    def _wake_all(self) -> None:
        with self._condition:
            self._generation += 1
            for _, send in self._wakers:
                os.write(send, b"\0")
            self._condition.notify_all()

    def close(self) -> None:
        """Wake all, and close the descriptors once nobody waits on them."""
        with self._mutex:
            self._closed = True
            self._wake_all()
            self._close_idle()

    def _close_idle(self) -> None:
        if not self._wakers and self._fd is not None:
            os.close(self._fd)
            self._fd = None
        if self._write_fd is not None:
            os.close(self._write_fd)
            self._write_fd = None

    def after_fork(self) -> "Waiters":
        """In a forked child: close what was inherited; gives a fresh object. Takes no lock."""
        for fd in (self._fd, self._write_fd, *chain.from_iterable(self._wakers)):
            if fd is not None:
                os.close(fd)
        return Waiters(self._path, poll_only=self._poll_only)
