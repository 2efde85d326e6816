"""What a worker process makes of what it is told."""

from __future__ import annotations

import mmap
import sys
from pathlib import Path

import pytest

from nobroker import App, Lanes
from nobroker.running import board as boards
from nobroker.running.board import Board
from nobroker.running.config import WorkerConfig
from nobroker.running.member import Member
from nobroker.running.tasks import WORK, Task
from tests.running.trial import Trial

posix = pytest.mark.skipif(sys.platform == "win32", reason="members catch signals that Windows has not")


@posix
@pytest.mark.parametrize("order", ["ordered", "priority", "fair"])
def test_queues_their_order_and_how_often_it_looks(tmp_path: Path, order: str) -> None:
    worker = WorkerConfig(queues=("a", "b"), order=order, threads=3, polling_interval=1.75, batch=4)
    task = Task(role=WORK, name="worker-1", worker=worker)
    member = Member(task, Board(mmap.mmap(-1, boards.size(3)), 3), None)
    app = App(tmp_path / "data", fsync=False)
    try:
        made = member._made_service(app, worker).worker
        assert made.poll_interval == 1.75
        assert (made.concurrency, made.batch) == (3, 4)
        assert isinstance(made.lanes, Lanes)
        assert (made.lanes.names, made.lanes.order) == (("a", "b"), order)
        assert app.queue.check() == []
    finally:
        app.close()
        member._caught.restore()


@pytest.mark.processes
@pytest.mark.skipif(sys.platform != "linux", reason="looks at processes through /proc")
@pytest.mark.parametrize(
    ("order", "expected"), [("ordered", ["a2", "a1", "b2", "b1"]), ("priority", ["b2", "a2", "b1", "a1"])]
)
def test_the_order_in_a_process_of_a_supervisor(trial: Trial, order: str, expected: list[str]) -> None:
    trial.add("@app.job\ndef named(name):\n    note('ran', name)\n")
    for name, priority in (("b1", 2), ("b2", 9), ("a1", 1), ("a2", 5)):
        trial.later("named", name, queue=name[0], priority=priority)
    running = trial.run("--processes", "1", "--max-jobs", "99", "--order", order, "--queues", "a,b", "--once")
    assert running.end(None) == 0
    assert "event=supervisor.started" in running.log()
    assert [name for _, name in trial.lines("ran")] == expected
