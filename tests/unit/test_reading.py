"""Values of jobs that are looked for in records that do not have them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nobroker import CorruptLogError, Queue


@pytest.mark.parametrize("field", ["error", "progress", "state"])
def test_a_reference_to_a_record_that_does_not_speak_of_the_job(tmp_path: Path, field: str) -> None:
    """As a snapshot, or a segment, that somebody made could have it."""
    with Queue(tmp_path, fsync=False) as queue:
        job = queue.enqueue("work")
        queue.nack(queue.lease(1)[0], error="tried", delay=0)
        store: Any = queue._store
        session = store._session
        record = session.log.read(session.log.find_one(job.seq))
        entries = session.state.entries
        entries[job.seq] = entries[job.seq]._replace(**{field: record.lsn})
        for look in (queue.list_jobs, lambda: queue.get(job.id), lambda: queue.lease(1)):
            with pytest.raises(CorruptLogError, match=f"offset {record.offset}"):
                look()


@pytest.mark.parametrize("told", [5, "x", [1], [5, 5]])
def test_a_value_of_another_shape(tmp_path: Path, told: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with Queue(tmp_path, fsync=False) as queue:
        job = queue.enqueue("work")
        held = queue.lease(1)[0]
        queue.extend(held, 10, state="s")
        store: Any = queue._store
        reader = store._session.reader
        ref = store._session.state.entries[job.seq].state
        monkeypatch.setattr(type(reader.at(ref)), "value", lambda self, index: told)
        with pytest.raises(CorruptLogError):
            reader.said(ref, job.seq, "J")
