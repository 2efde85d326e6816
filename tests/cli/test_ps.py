"""`nobroker ps`: who works on a queue."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator

import pytest

from nobroker import App
from nobroker.running.info import CurrentJob
from nobroker.running.registry import Registration
from tests.running.conftest import Programs

from .conftest import CommandLine
from .test_terminal import FORBIDDEN, HOSTILE, on_terminal


@pytest.fixture
def programs(nobroker: CommandLine) -> Iterator[Programs]:
    made = Programs(nobroker.dir.parent)
    yield made
    made.end()


def test_nobody_works(nobroker: CommandLine) -> None:
    with nobroker.queue():
        ran = nobroker("ps")
        assert (ran.code, ran.out, ran.err) == (0, "", "no process works on queue 'default'\n")
        assert nobroker.json("ps") == []


def test_there_is_no_queue(nobroker: CommandLine) -> None:
    assert "no queue" in nobroker("ps").said_in_one_line()
    with nobroker.queue():
        assert "no queue 'mails'" in nobroker("-q", "mails", "ps").said_in_one_line()


def test_what_is_shown(nobroker: CommandLine) -> None:
    with nobroker.queue() as queue:
        worker = Registration(
            queue, "worker", supervisor="none that is here", queues=["mails", "b*"], threads=3
        )
        boss = Registration(queue, "supervisor")
        mine = Registration(queue, "worker", supervisor=boss.id, threads=1)
        at = worker.info.started_at - 4000
        jobs = (
            CurrentJob(id="j-1", job_class="Send", queue="mails", started_at=at + 3990),
            CurrentJob(id="j-2", job_class="Report", queue="b1", started_at=at),
        )
        worker.update(state="running", started_at=at, jobs=jobs, finished=12345, failed=67, recycling="old")
        worker.beat()
        lines = [line.split("\t") for line in nobroker("ps").out.splitlines()]
        found = nobroker.json("ps")
        for one in (mine, boss, worker):
            one.close()
    head, first, second, third, fourth = lines
    assert (head[0], head[4:6], head[-2:]) == ("PID", ["UP", "SEEN"], ["RUNS NOW", "FOR"])
    assert first[:3] == [str(os.getpid()), "worker", "running, recycling"]
    assert first[4] == "1 h 6 min"
    assert first[7:] == ["mails,b*", "2/3", "12,345", "67", "Report j-2", "1 h 6 min"]
    assert second[:11] == [""] * 11
    assert second[11] == "Send j-1"
    assert [third[1], fourth[1]] == ["supervisor", "worker"]
    assert third[7:] == ["-", "-", "0", "0", "-", "-"]
    assert [one["id"] for one in found] == [worker.id, boss.id, mine.id]
    assert found[0]["queues"] == ["mails", "b*"]
    assert found[0]["recycling"] == "old"
    assert 4000 <= found[0]["age"] < 4100
    assert 0 <= found[0]["seen_ago"] < 100
    assert [(job["id"], job["queue"]) for job in found[0]["jobs"]] == [("j-2", "b1"), ("j-1", "mails")]
    assert 4000 <= found[0]["jobs"][0]["running_for"] < 4100
    assert found[0]["memory"] or sys.platform != "linux"


@pytest.mark.parametrize("terminal", [False, pytest.param(True, marks=pytest.mark.processes)])
def test_hostile_names_steer_no_terminal(nobroker: CommandLine, terminal: bool) -> None:
    if terminal and sys.platform == "win32":
        pytest.skip("needs a pseudo-terminal")
    with nobroker.queue() as queue:
        one = Registration(queue, "worker", queues=[HOSTILE])
        one.update(
            state=HOSTILE, jobs=(CurrentJob(id=HOSTILE, job_class=HOSTILE, queue=HOSTILE, started_at=1.0),)
        )
        one.beat()
        seen = on_terminal(nobroker, "ps") if terminal else nobroker("ps").out
        assert nobroker("--json", "ps").out.isascii()
        one.close()
    assert seen.strip()
    shown = seen.replace("\r\n", "").replace("\n", "").replace("" if terminal else "\t", "")
    assert not [char for char in FORBIDDEN if char in shown]


@pytest.mark.processes
@pytest.mark.skipif(os.name != "posix", reason="needs signals")
def test_a_worker_is_listed_with_what_it_does_until_it_is_killed(
    nobroker: CommandLine, programs: Programs
) -> None:
    worker = programs(
        "import sys",
        "from nobroker import App",
        "app = App('jobs', fsync=False)",
        "@app.job",
        "def hang():",
        "    print('it runs', flush=True)",
        "    sys.stdin.readline()",
        "hang.set(job_id='one').perform_later()",
        "app.run(heartbeat_interval=0.05)",
    )
    assert worker.stdout is not None
    assert worker.stdout.readline() == "it runs\n"
    app = App(nobroker.dir)
    while not (jobs := [job for one in app.processes() for job in one.jobs]):
        assert worker.poll() is None
    assert [(job.id, job.job_class) for job in jobs] == [("one", "hang")]
    assert [one["pid"] for one in nobroker.json("ps")] == [worker.pid]
    os.kill(worker.pid, signal.SIGKILL)
    worker.wait()
    assert nobroker.json("ps") == []
    assert app.processes() == []
    app.close()


def test_of_a_damaged_queue_too(nobroker: CommandLine) -> None:
    with nobroker.queue() as queue:
        queue.enqueue(1)
        one = Registration(queue, "worker")
        segment = nobroker.dir / "default.000001.seg"
        sound = segment.read_bytes()
        segment.write_bytes(b"x" * 200 + sound[200:])
        assert [seen["id"] for seen in nobroker.json("ps")] == [one.id]
        segment.write_bytes(sound)
        one.close()
