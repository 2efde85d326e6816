"""`nobroker top`: what it looks at, what it draws, its keys on a terminal, and how it leaves that."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from nobroker import App, ProcessInfo, Queue, QueueStats
from nobroker.cli import top_look, top_view
from nobroker.cli.keys import DOWN, UP, _keys
from nobroker.clock import ManualClock
from nobroker.running.info import CurrentJob, QueueWait
from nobroker.running.registry import Registration, registered

from .conftest import CommandLine
from .test_terminal import FORBIDDEN, HOSTILE

terminal = pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")


@pytest.fixture
def queue(nobroker: CommandLine) -> Iterator[Queue]:
    """Two queues of an application, and one record of the library's own."""
    with nobroker.queue(fsync=False, clock=ManualClock(time.time())) as made:
        made.enqueue_many(range(3), lane="mails")
        made.enqueue_many(range(2), lane="reports", delay=60)
        made.enqueue(0, lane="nobroker.watch", delay=1e6)
        made.pause(lane="reports")
        made.lane_limit("mails", 5)
        for job in made.lease(2, lanes=["mails"]):
            made.nack(job, error="no", dead=True)
        yield made


@pytest.fixture
def worker(queue: Queue) -> Iterator[Registration]:
    """A process that says that it works on it."""
    made = Registration(queue, "worker", queues=["*"], threads=2)
    made.update(
        state="running",
        jobs=(CurrentJob(id="j-1", job_class="Send", queue="mails", started_at=time.time() - 5),),
        waits=(QueueWait(queue="mails", count=3, p50=0.25, p95=1.5),),
    )
    made.beat()
    yield made
    made.close()


def test_one_look_in_a_pipe(nobroker: CommandLine, worker: Registration) -> None:
    head, columns, mails, reports, of_workers, process = nobroker("top", "--once").out.splitlines()
    assert head.endswith(" 1 waiting, 0 running, 2 dead, " + head.rpartition(", ")[2])
    assert columns.split("\t") == list(top_view.QUEUES)
    assert mails.split("\t")[:7] == ["mails", "1", "0", "0", "2", "-", "-"]
    assert mails.split("\t")[8:] == ["250 ms", "1.5 s", "at most 5"]
    assert reports.split("\t") == ["reports", "0", "2", "0", "0", "-", "-", "-", "-", "-", "paused"]
    assert of_workers.split("\t") == list(top_view.PROCESSES)
    assert process.split("\t")[:3] == [str(os.getpid()), "worker", "running"]
    assert process.split("\t")[-2].endswith("Send j-1")


def test_one_look_as_json(nobroker: CommandLine, worker: Registration) -> None:
    found = nobroker.json("top", "--once")
    assert (found["queue"], found["paused"]) == ("default", False)
    mails, reports = found["queues"]
    assert mails["oldest"] >= 0
    del mails["oldest"]
    assert mails == {
        "name": "mails", "ready": 1, "delayed": 0, "leased": 0, "dead": 2, "added": None, "ended": None,
        "wait_p50": 0.25, "wait_p95": 1.5, "paused": False, "limit": 5,
    }  # fmt: skip
    assert (reports["name"], reports["delayed"], reports["paused"]) == ("reports", 2, True)
    (process,) = found["processes"]
    assert process["id"] == worker.id
    assert process["jobs"][0]["running_for"] >= 5


def test_how_fast_it_goes(queue: Queue) -> None:
    def look(before: top_look.Look | None, at: float) -> top_look.Look:
        return top_look.look(queue, [], before, at=at, now=0.0)

    first = look(None, 10.0)
    assert {(row.added, row.ended) for row in first.rows} == {(None, None)}
    queue.enqueue_many(range(10), lane="mails")
    queue.enqueue_many(range(4), lane="new")
    queue.ack_many(queue.lease(4, lanes=["mails"]))
    second = look(first, 12.0)
    assert [(row.name, row.added, row.ended) for row in second.rows] == [
        ("mails", 5.0, 2.0), ("new", 2.0, 0.0), ("reports", 0.0, 0.0),
    ]  # fmt: skip
    queue.purge(lane="mails")
    third = look(second, 13.0)
    assert [(row.name, row.added, row.ended) for row in third.rows if row.name != "reports"] == [
        ("new", 0.0, 0.0)
    ]
    assert look(third, 13.0).rows[0].added is None  # no time has passed


def test_an_empty_queue(nobroker: CommandLine) -> None:
    with nobroker.queue():
        assert nobroker.json("top", "--once") | {"time": 0} == {
            "queue": "default", "time": 0, "paused": False, "queues": [], "processes": [],
        }  # fmt: skip


def test_what_cannot_be(nobroker: CommandLine) -> None:
    assert "no directory" in nobroker("top", "--once").said_in_one_line()
    with nobroker.queue():
        assert "--once prints one look" in nobroker("top").said_in_one_line()
        assert nobroker("--json", "top").code == 2


def stats(ready: int) -> QueueStats:
    return QueueStats(ready=ready, total=ready)


def frame(lanes: int, processes: int) -> top_look.Look:
    """A look at so many."""
    rows = [
        top_look.Row(
            name=f"lane-{number:02}", ready=number, delayed=0, leased=0, dead=0, added=None, ended=1234.5,
            oldest=None, wait_p50=None, wait_p95=None, paused=False, limit=None,
        )
        for number in range(lanes)
    ]  # fmt: skip
    found = [
        ProcessInfo(id=f"p-{number}", kind="worker", pid=number, host="h", started_at=1.0, seen_at=1.0)
        for number in range(processes)
    ]
    return top_look.Look(at=1.0, now=2.0, total=stats(5), rows=rows, processes=found, seen={})


@pytest.mark.parametrize("lanes", [0, 3, 40])
@pytest.mark.parametrize("processes", [0, 2, 30])
@pytest.mark.parametrize("height", [1, 12, 24, 100, None])
def test_a_frame_fits_its_terminal(lanes: int, processes: int, height: int | None) -> None:
    from rich.console import Console

    console = Console(width=200, height=height or 24, highlight=False, markup=False)
    for chosen in {f"lane-{number:02}" for number in (0, lanes // 2, lanes - 1)} if lanes else {""}:
        with console.capture() as captured:
            console.print(top_view.draw(frame(lanes, processes), "here", chosen, "", height))
        text = captured.get()
        lines = text.rstrip("\n").splitlines()
        assert height is None or len(lines) <= max(height, 11)
        assert chosen in text
        shown = sum(line.lstrip().startswith("lane-") for line in lines)
        assert shown == lanes or f"{lanes - shown} more queues" in text
        assert ("no process works" in text) is (processes == 0)


KEYS: list[tuple[bytes, list[str]]] = [
    (b"p", ["p"]), (b"\x1b[A", [UP]), (b"\x1bOB", [DOWN]), (b"jk\x1b[B\x1b[Aq", ["j", "k", DOWN, UP, "q"]),
    (b"\x1b", []), (b"\x1b[15~d", ["d"]), (b"\x1b[1;5A", []), (b"\xc3\xa9\x00\x0c\r", []), (b"\x1bx", []),
]  # fmt: skip


@pytest.mark.parametrize(("pressed", "meant"), KEYS, ids=lambda value: repr(value)[:20])
def test_what_is_pressed(pressed: bytes, meant: list[str]) -> None:
    assert _keys(pressed) == meant


class Screen:
    """`nobroker top` on a terminal of its own."""

    def __init__(self, line: CommandLine, *words: str, program: str | None = None) -> None:
        import fcntl
        import pty
        import struct
        import termios

        self.master, self.slave = pty.openpty()
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 160, 0, 0))
        self.before = termios.tcgetattr(self.slave)
        environment = {**os.environ, "TERM": "xterm", "PYTHONUTF8": "1"}
        for name in ("COLUMNS", "LINES", "NO_COLOR"):
            environment.pop(name, None)
        command = line.words("top", *words)
        if program is not None:  # in the place of ``-m nobroker``
            command[1:3] = ["-c", program]
        self.process = subprocess.Popen(
            command,
            stdin=self.slave, stdout=self.slave, stderr=self.slave, env=environment, start_new_session=True,
        )  # fmt: skip
        self.seen = ""

    def press(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    def shows(self, words: str) -> None:
        """Wait until these words are drawn, anew."""
        import select

        self.seen = ""
        deadline = time.monotonic() + 30
        while words not in self.seen:
            assert time.monotonic() < deadline, f"{words!r} is not in {self.seen!r}"
            assert self.process.poll() is None, self.seen
            if select.select([self.master], [], [], 0.2)[0]:
                self.seen += os.read(self.master, 65536).decode("utf-8", "replace")

    def is_as_before(self) -> bool:
        """Whether the terminal is what it was: the main screen, the cursor, line by line, with echo."""
        import select
        import termios

        while select.select([self.master], [], [], 0.2)[0]:
            self.seen += os.read(self.master, 65536).decode("utf-8", "replace")
        left, shown = self.seen.rpartition("\x1b[?1049l")[1:], self.seen.rpartition("\x1b[?25h")[1]
        return bool(left[0]) and bool(shown) and termios.tcgetattr(self.slave) == self.before

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.master)
        os.close(self.slave)


@pytest.fixture
def screen(nobroker: CommandLine, queue: Queue) -> Iterator[Callable[..., Screen]]:
    made: list[Screen] = []

    def open_one(*words: str, **how: str) -> Screen:
        made.append(Screen(nobroker, *words, **how))
        return made[-1]

    yield open_one
    for one in made:
        one.close()


@terminal
@pytest.mark.processes
def test_keys_on_a_terminal(screen: Callable[..., Screen], worker: Registration, queue: Queue) -> None:
    one = screen("--every", "0.2")
    one.shows("Send j-1")
    assert "mails" in one.seen
    assert "nobroker.watch" not in one.seen
    one.press("p")
    one.shows("paused mails")
    assert queue.stats(lane="mails").paused
    one.press("r")
    one.shows("resumed mails")
    assert not queue.stats(lane="mails").paused
    one.press("d")
    one.shows("requeued 2 dead jobs of mails")
    assert queue.stats(lane="mails").ready == 3
    one.press("\x1b[B")
    one.shows("q quit")
    one.press("r")
    one.shows("resumed reports")
    assert not queue.stats(lane="reports").paused
    queue.enqueue_many(range(1234), lane="mails")
    one.shows("1,237")
    one.press("kkp")
    one.shows("paused mails")
    one.press("q")
    assert one.process.wait(30) == 0
    assert one.is_as_before()


@terminal
@pytest.mark.processes
@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT"])
def test_a_signal_leaves_the_terminal_as_it_was(screen: Callable[..., Screen], number: str) -> None:
    one = screen()
    one.shows("mails")
    one.process.send_signal(getattr(signal, number))
    assert one.process.wait(30) == 0
    assert one.is_as_before()


@terminal
@pytest.mark.processes
def test_a_key_that_cannot_do_what_it_is_for_says_why(
    screen: Callable[..., Screen], nobroker: CommandLine
) -> None:
    one = screen("--every", "0.2")
    one.shows("mails")
    (segment,) = nobroker.dir.glob("default.*.seg")
    segment.rename(nobroker.dir / "away")
    try:
        one.press("p")
        one.shows("has lost every segment file")
        one.press("q")
        assert one.process.wait(30) == 0
    finally:
        (nobroker.dir / "away").rename(segment)
    assert one.is_as_before()


@terminal
@pytest.mark.processes
def test_an_error_leaves_the_terminal_as_it_was_and_is_said_there(screen: Callable[..., Screen]) -> None:
    one = screen("--every", "0.2", program=BREAKS)
    assert one.process.wait(30) == 1
    assert one.is_as_before()
    assert one.seen.rpartition("\x1b[?1049l")[2].strip().endswith("error: it broke")


BREAKS = """
import sys
from nobroker.cli import top, top_look
from nobroker.cli.main import main
looks = [top_look.look]
def look(*args, **named):
    if not looks:
        raise ValueError("it broke")
    return looks.pop()(*args, **named)
top_look.look = look
sys.exit(main(sys.argv[1:]))
"""


@terminal
@pytest.mark.processes
def test_hostile_names_steer_no_terminal(nobroker: CommandLine, queue: Queue) -> None:
    lane = "a\u202e[bold]\u2066"
    queue.enqueue(1, lane=lane)
    made = Registration(queue, "worker", queues=[HOSTILE])
    made.update(
        state=HOSTILE, jobs=(CurrentJob(id=HOSTILE, job_class=HOSTILE, queue=HOSTILE, started_at=1.0),)
    )
    made.beat()
    ran = nobroker("top", "--once")
    look = top_look.look(queue, registered(queue), None, at=1.0, now=2.0)
    made.close()
    from rich.console import Console

    console = Console(width=500, highlight=False, markup=False)
    with console.capture() as captured:
        console.print(top_view.draw(look, HOSTILE, lane, HOSTILE, 40))
    for text in (ran.out, captured.get()):
        assert "a\\u202e[bold]\\u2066" in text
        assert not [char for char in FORBIDDEN if char in text.replace("\n", "").replace("\t", "")]


@terminal
@pytest.mark.processes
def test_real_work_is_seen(screen: Callable[..., Screen], nobroker: CommandLine, queue: Queue) -> None:
    app = App(nobroker.dir, fsync=False)
    running: list[Any] = []

    @app.job(name="Seen", queue="visible")
    def seen() -> None:
        running.append(screen("--every", "0.2"))
        running[0].shows("Seen j-7")
        running[0].press("q")
        assert running[0].process.wait(30) == 0

    seen.set(job_id="j-7").perform_later()
    assert app.run(once=True, queues=["visible"], handle_signals=False, heartbeat_interval=0.1).succeeded == 1
    app.close()
