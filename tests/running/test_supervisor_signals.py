"""What signals do to a supervisor and its processes."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import Counter

import pytest

from tests.running.trial import Running, Trial, wait_for

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(sys.platform != "linux", reason="looks at processes through /proc"),
]


def states(trial: Trial) -> list[tuple[str, int]]:
    return [(str(job.state), job.attempts) for job in trial.jobs() if job.lane == "default"]


def whole_runs(trial: Trial) -> bool:
    """Each run that was begun came to its end."""
    words = [line[-1] for line in trial.lines("slow")]
    return words.count("begun") == words.count("ended")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_what_was_begun_ends_and_nothing_more_is_begun(trial: Trial, number: int) -> None:
    trial.later("slow", "slow", 0.5, count=6)
    running = trial.run("--processes", "2")
    trial.until("slow", 2)
    assert running.end(number) == 0
    assert whole_runs(trial)
    assert sorted(states(trial)) == [("done", 1)] * 2 + [("ready", 0)] * 4


def test_what_does_not_end_in_time_is_given_back_and_no_attempt_is_burnt(trial: Trial) -> None:
    trial.add("""
@app.on_shutdown
def shut():
    note("shut")

if Path("jobs.py").exists():  # where it runs, not where it is enqueued
    atexit.register(note, "exit")
""")
    trial.later("slow", "slow", 600, count=2)
    running = trial.run("--processes", "2", "--shutdown-timeout", "0.3")
    trial.until("slow", 2)
    assert running.end() == 1
    assert states(trial) == [("ready", 0)] * 2
    assert len(trial.lines("shut")) == 2, "hooks of the end run in each worker"
    assert len(trial.lines("exit")) == 3, "and what is registered with atexit, in all three processes"


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_does_not_wait(trial: Trial, second: int) -> None:
    trial.later("slow", "slow", 600, count=2)
    running = trial.run("--processes", "2")
    trial.until("slow", 2)
    running.tell(signal.SIGTERM)
    running.says("event=supervisor.stopping ")
    running.says("stopping why=", 2)
    time.sleep(0.15)  # sooner it would be the same signal once more
    assert running.end(second) == 1
    assert states(trial) == [("ready", 0)] * 2


def test_the_same_signal_twice_at_once_is_one(trial: Trial) -> None:
    trial.later("slow", "slow", 0.5, count=2)
    running = trial.run("--processes", "2")
    trial.until("slow", 2)
    running.tell(signal.SIGTERM)
    assert running.end() == 0
    assert states(trial) == [("done", 1)] * 2


def test_quit_gives_back_at_once_and_others_get_it(trial: Trial) -> None:
    trial.later("slow", "slow", 600, count=2)
    other = trial.run("--threads", "2", "--no-scheduler")
    trial.until("slow", 2)
    other.tell(signal.SIGSTOP)  # it holds the jobs
    running = trial.run("--processes", "2")
    running.workers(2)
    trial.later("slow", "slow", 600, count=2)
    trial.until("slow", 4)
    third = trial.run("--processes", "2")
    third.workers(2)
    began = time.monotonic()
    assert running.end(signal.SIGQUIT) == 1
    trial.until("slow", 6)
    assert time.monotonic() - began < 5
    assert third.end(signal.SIGQUIT) == 1


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGTSTP])
def test_quiet_takes_no_more_and_stays(trial: Trial, number: int) -> None:
    trial.later("slow", "slow", 0.5, count=2)
    running = trial.run("--processes", "2")
    trial.until("slow", 2)
    workers = running.workers(2)
    running.tell(number)
    running.says("nobroker.worker: event=stopped", 2)
    trial.later("quick", count=5)
    with trial.queue() as queue:
        assert [job.state for job in queue.list_jobs()] == ["done"] * 2 + ["ready"] * 5
        assert queue.lease(1) != [], "nobody else is after them"
    assert running.children() == workers
    running.tell(signal.SIGHUP)
    running.says("event=restart.refused")
    assert running.children() == workers
    assert running.end() == 0
    assert whole_runs(trial)


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGTSTP])
def test_quiet_and_then_leave(trial: Trial, number: int) -> None:
    trial.add("app.recurring('0 0 1 1 *', quick)\n")
    trial.later("slow", "slow", 0.5, count=2)
    running = trial.program("workers=(WorkerConfig(processes=2),), quiet_then_exit=True")
    trial.until("slow", 2)
    running.says("event=process.started role=scheduler")
    assert running.end(number) == 0
    assert states(trial) == [("done", 1)] * 2


def test_recurring_tasks_go_on_while_it_is_quiet(trial: Trial) -> None:
    trial.add("@app.recurring('* * * * * *')\n@app.job\ndef tick():\n    note('ticks')\n")
    running = trial.run("--processes", "2")
    trial.until("ticks", 1)
    running.tell(signal.SIGUSR1)
    running.says("nobroker.worker: event=stopped", 2)
    with trial.queue() as queue:
        before = queue.stats(lane="default").ready
        wait_for(lambda: queue.stats(lane="default").ready >= before + 2, running.log)
    assert running.log().count("event=process.started role=scheduler") == 1
    assert running.end() == 0


def test_restarts_one_by_one_without_a_gap(trial: Trial) -> None:
    running = trial.run("--processes", "2")
    old = running.workers(2)
    trial.later("slow", "slow", 0.05, count=100)
    trial.until("slow", 10)
    running.tell(signal.SIGHUP)
    seen = set()

    def over() -> bool:
        there = running.children()
        seen.add(len(there))
        return len(there) == 2 and not set(there) & set(old)

    wait_for(over, running.log)
    assert min(seen) >= 2, "never fewer than there should be"
    assert max(seen) <= 3, "never more than one in addition"
    trial.until("slow", 200)
    assert running.end() == 0
    assert states(trial) == [("done", 1)] * 100


def test_a_restart_that_fails_leaves_the_old_ones_at_work(trial: Trial) -> None:
    trial.add("@app.on_worker_start\ndef start():\n    if Path('broken').exists(): os._exit(9)\n")
    running = trial.run("--processes", "2")
    old = running.workers(2)
    (trial.home / "broken").touch()
    running.tell(signal.SIGHUP)
    running.says("event=restart.given_up")
    (trial.home / "broken").unlink()
    assert running.children() == old
    trial.later("quick")
    trial.until("quick", 1)
    running.tell(signal.SIGHUP)
    wait_for(lambda: len(running.children()) == 2 and not set(running.children()) & set(old), running.log)
    assert running.end() == 0


def test_the_hook_for_usr2(trial: Trial) -> None:
    running = trial.program("workers=(WorkerConfig(processes=2),)", more="on_usr2=lambda: note('usr2')")
    running.workers(2)
    running.tell(signal.SIGUSR2)
    trial.until("usr2", 1)
    wait_for(lambda: len(list((trial.home / "data").glob("*metrics*"))) >= 2, lambda: str(running.log()))
    assert running.end() == 0


def recorders(running: Running, what: str) -> Counter[int]:
    """How often each process said that of a recording."""
    words = f" event=metrics.{what} "
    return Counter(int(line.split()[0]) for line in running.log().splitlines() if words in line)


def test_a_worker_that_replaces_another_records_as_the_others_do(trial: Trial) -> None:
    running = trial.program("workers=(WorkerConfig(processes=2),)")
    first, second = running.workers(2)
    running.tell(signal.SIGUSR2)
    running.says("event=metrics.started", 2)
    os.kill(first, signal.SIGKILL)
    running.says("event=metrics.started", 3)
    (third,) = set(running.children()) - {second}
    assert recorders(running, "started") == Counter([first, second, third])
    running.tell(signal.SIGUSR2)
    running.says("event=metrics.stopped", 2)
    assert recorders(running, "stopped") == Counter([second, third])
    os.kill(second, signal.SIGKILL)
    running.says("started concurrency", 4)
    (fourth,) = set(running.children()) - {third}
    running.tell(signal.SIGUSR2)
    running.says("event=metrics.started", 5)
    assert recorders(running, "started") == Counter([first, second, third, third, fourth])
    assert running.end() == 0
    assert recorders(running, "stopped") == Counter([second, third, third, fourth])


def test_recordings_that_ended_by_themselves_can_be_begun_again(trial: Trial) -> None:
    running = trial.program(
        "workers=(WorkerConfig(processes=2),)",
        before="from nobroker.running import metrics\nmetrics.TOGGLED_S = 0.01",
    )
    workers = running.workers(2)
    for times in (1, 2):
        running.tell(signal.SIGUSR2)
        running.says("event=metrics.stopped", 2 * times)
        assert recorders(running, "started") == Counter(workers * times)
    assert running.end() == 0
    assert recorders(running, "stopped") == Counter(workers * 2)


# -- a stop at any moment of the start


def ended(running: Running) -> int:
    """Its exit code; nothing that it started is left."""
    return running.end(None)


def fates(trial: Trial) -> None:
    """Jobs ran to their end, or wait as if they had never been begun."""
    for state, attempts in states(trial):
        assert (state, attempts) in (("done", 1), ("ready", 0))
    assert whole_runs(trial)


@pytest.mark.parametrize(
    "since, ms",
    [("begun", 0), ("begun", 200), *(("supervisor.started", ms) for ms in (0, 5, 20, 50, 200))],
)
def test_stop_while_it_starts(trial: Trial, since: str, ms: int) -> None:
    trial.later("slow", "slow", 1, count=16)
    running = trial.run("--processes", "8")
    if since != "begun":
        running.says(since)
    time.sleep(ms / 1000)
    running.tell(signal.SIGTERM)
    code = ended(running)
    assert code == (0 if "supervisor.started" in running.log() else -signal.SIGTERM), running.log()
    fates(trial)


def test_stop_of_the_whole_group_in_the_midst_of_jobs(trial: Trial) -> None:
    trial.later("slow", "slow", 1, count=16)
    running = trial.run("--processes", "8")
    trial.until("slow", 8)
    os.killpg(running.pid, signal.SIGTERM)
    assert ended(running) == 0
    assert whole_runs(trial)
    assert sorted(states(trial)) == [("done", 1)] * 8 + [("ready", 0)] * 8


def test_two_stops_in_a_row_while_it_starts(trial: Trial) -> None:
    trial.later("slow", "slow", 1, count=16)
    running = trial.run("--processes", "8")
    running.says("supervisor.started")
    running.tell(signal.SIGTERM)
    running.tell(signal.SIGTERM)
    assert ended(running) == 0
    fates(trial)


def test_children_see_that_their_supervisor_is_gone(trial: Trial) -> None:
    trial.later("slow", "slow", 1, count=16)
    running = trial.run("--processes", "8")
    trial.until("slow", 8)
    running.tell(signal.SIGKILL)
    assert ended(running) == -signal.SIGKILL
    assert running.log().count("event=process.orphaned") == 8
    assert whole_runs(trial)
    assert sorted(states(trial)) == [("done", 1)] * 8 + [("ready", 0)] * 8


def test_orphans_end_whatever_their_jobs_are_at(trial: Trial) -> None:
    trial.add("@app.on_worker_stop\ndef hang():\n    time.sleep(600)\n")
    trial.later("slow", "slow", 600, count=2)
    running = trial.program(
        "workers=(WorkerConfig(processes=2),), shutdown_timeout=0.2",
        before="from nobroker.running import keeper\nkeeper.EXIT_GRACE_S = 0.3",
    )
    trial.until("slow", 2)
    running.tell(signal.SIGKILL)
    assert ended(running) == -signal.SIGKILL
    assert running.log().count("event=process.stuck") == 2
    assert states(trial) == [("ready", 0)] * 2


def test_a_child_that_is_killed_at_the_end_is_no_clean_end(trial: Trial) -> None:
    trial.later("slow", "slow", 600, count=2)
    running = trial.run("--processes", "2")
    ((victim, _), (other, _)) = trial.until("slow", 2)
    running.tell(signal.SIGTERM)
    running.says("stopping why=", 2)
    os.kill(int(victim), signal.SIGKILL)
    running.says("how=SIGKILL")
    (trial.home / "let_go").touch()
    assert ended(running) == 1
    assert sorted(states(trial)) == [("done", 1), ("leased", 1)]
    assert other != victim
