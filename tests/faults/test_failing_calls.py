"""System calls of one process fail while another one has the queue open."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from nobroker import Queue, StorageError
from tests.faults import strace
from tests.faults.account import account_of
from tests.faults.book import SEGMENT
from tests.faults.kill_child import Children


@pytest.fixture(scope="module")
def children() -> Iterator[Children]:
    strace.needed()
    found = Children()
    yield found
    found.close()


@pytest.mark.parametrize(
    ("scenario", "fault", "poisons"),
    [
        ("append", "fdatasync:error=EIO:when=1", True),
        ("ack", "fdatasync:error=EIO:when=2", True),
        ("rotate", "fdatasync:error=EIO:when=2", True),
        ("rotate", "fsync:error=EIO:when=1", False),  # of the segment that was about to appear
        ("rotate", "fsync:error=EIO:when=2", True),  # of the directory in which it had appeared
        ("append", "pwrite64:error=ENOSPC:when=1", False),
        ("ack", "pwrite64:error=EDQUOT:when=1+", False),
        ("rotate", "fallocate:error=ENOSPC:when=1+", False),
        ("append", "pwrite64:retval=0:when=1", False),  # nothing was written, and no error said so
    ],
)
def test_others_know(
    scenario: str, fault: str, poisons: bool, children: Children, quick_directory: Path
) -> None:
    jobs = quick_directory / "jobs"
    other = Queue(jobs, segment_size=SEGMENT)
    pid = children.begin(scenario, quick_directory)
    strace.with_fault(children, pid, fault)
    if poisons:
        with pytest.raises(StorageError):
            other.enqueue({"key": "refused"})
    else:
        other.enqueue({"key": "accepted"})
    other.close()
    account = account_of(quick_directory / "notes")
    account.absent.add("refused")
    (account.absent if poisons else account.there).add("accepted")
    with Queue(jobs, segment_size=SEGMENT) as queue:
        account.compare(queue)
        queue.enqueue({"key": "again"})
        assert [finding for finding in queue.check() if finding.severity != "note"] == []
