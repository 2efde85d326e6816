"""The log engine with the few questions that only a queue asks."""

from __future__ import annotations

from nobroker_mmap.log import Log


class JobLog(Log):
    """A log of jobs: keys are sequence numbers."""

    @property
    def path(self) -> str:
        """The directory and name, for messages."""
        return f"{self.directory}/{self.name}"

    def ensure_open(self) -> None:
        """Raise `QueueClosedError` after `close`."""
        self._refuse_closed()

    def distrust_snapshot(self) -> None:
        """The snapshot's objects are of no use: go back to the first record that counts."""
        self._rewind()

    def bytes_used(self) -> int:
        """Bytes in use: headers and records of the segments that count."""
        segments = self._chain.segments
        front = next(iter(segments.values()))
        return self._chain.cursor - front.base + 128 * len(segments)

    def front_number(self) -> int:
        return self._chain.floor

    def active_number(self) -> int:
        return self._chain.newest.number

    def jobs_held(self) -> int:
        """About how many jobs the log holds, finished ones included."""
        return sum(max(0, info.last_key - info.first_key + 1) + info.moved_rows for info in self.segments())

    def key_ranges(self, number: int) -> list[tuple[int, int]]:
        """The sequence numbers of which a segment has a copy, as ranges, ascending."""
        ranges: list[tuple[int, int]] = []
        enqueued, moved = self.rows_of(number)
        for first, _, count in sorted(enqueued + moved):
            last = first + count - 1
            if ranges and first <= ranges[-1][1] + 1:
                ranges[-1] = (ranges[-1][0], max(ranges[-1][1], last))
            else:
                ranges.append((first, last))
        return ranges
