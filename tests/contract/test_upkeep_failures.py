"""What a verb does on the side never fails the verb."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from nobroker import CorruptLogError, Queue, StorageError


def test_a_snapshot_or_compaction_that_fails_is_logged_and_the_job_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with Queue(tmp_path) as queue:
        store = queue._store
        session = store._session  # type: ignore[attr-defined]

        def refuse(*_: object) -> None:
            raise StorageError("the disk is full")

        monkeypatch.setattr(session.log, "snapshot_due", lambda: True)
        monkeypatch.setattr(session.log, "begin_snapshot", refuse)
        monkeypatch.setattr(store._mover, "step_if_due", refuse)  # type: ignore[attr-defined]
        with caplog.at_level(logging.WARNING, "nobroker.queue"):
            job = queue.enqueue("kept")
        monkeypatch.undo()
        assert queue.get(job.id).payload == "kept"
        events = {record.getMessage().split()[0] for record in caplog.records}
        assert events == {"event=queue.snapshot_failed", "event=queue.upkeep_failed"}
        assert queue.check() == []


def test_an_ack_is_recorded_though_the_next_job_cannot_be_read(tmp_path: Path) -> None:
    """A worker's ack and next lease share a group; damage ahead takes only the lease."""
    with Queue(tmp_path, fsync=False) as queue:
        queue.enqueue("fine")
        queue.enqueue("damaged later")
        held = queue.lease_one()
        assert held is not None
        (segment,) = tmp_path.glob("*.seg")
        raw = segment.read_bytes()
        with segment.open("r+b") as file:
            file.seek(raw.index(b"damaged later"))
            file.write(b"X")
        with pytest.raises(CorruptLogError):
            queue._settle_and_lease([(held, None)], 1)
        assert queue.stats().done == 1
        queue.ack(held)
