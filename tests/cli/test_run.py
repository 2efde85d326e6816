"""`nobroker run`: the jobs of an application, in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from nobroker import Queue
from nobroker.app.serving import Service
from nobroker.cli.main import main

from .conftest import Ran

pytestmark = pytest.mark.processes

FILES = {
    "shop/__init__.py": "",
    "shop/base.py": "from nobroker import App\napp = App('data', fsync=False, max_attempts=1)\n",
    "shop/mails.py": """
import sys, time
from shop.base import app

@app.job(queue="mails")
def send(to):
    return f"sent to {to}"

@app.job
def fail(text):
    raise ValueError(text)

@app.job
def leave():
    sys.exit(4)

@app.job
def last(seconds):
    print("it runs", file=sys.stderr, flush=True)
    time.sleep(seconds)
    return "to its end"
""",
    "shop/deep/__init__.py": "",
    "shop/deep/reports.py": """
import threading
from nobroker import BaseJob
from shop.base import app

barrier = threading.Barrier(3)

@app.register
class Report(BaseJob):
    def perform(self):
        barrier.wait(20)
""",
    "other/__init__.py": "",
    "other/jobs.py": "from nobroker import App\nmine = App('theirs')\n@mine.job\ndef send(): ...\n",
    "both.py": "import shop.mails, other.jobs\n",
    "empty/__init__.py": "",
    "bare.py": "from nobroker import App\napp = App('data')\nnumber = 5\n",
    "broken.py": "def f(:\n",
    "leaves.py": "import sys\nsys.exit('bye')\n",
    "needs.py": "import no_such_library\n",
    "misspelt.py": "from shop.base import app\n@app.job(que='mails')\ndef f(): ...\n",
    "twice.py": "from shop.mails import app\n@app.job\ndef send(): ...\n",
    "wrong.yml": "workers:\n- thread: 2\n",
    "loud.py": "import logging, shop.mails\nlogging.basicConfig(format='MINE %(message)s', level='INFO')\n",
}


class Project:
    """A directory with packages, where the command is typed."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("NOBROKER_")}
        self.env["PYTHONPATH"] = os.pathsep.join(sys.path)
        for name, text in FILES.items():
            (home / name).parent.mkdir(parents=True, exist_ok=True)
            (home / name).write_text(text)

    def python(self, *lines: str) -> None:
        """Run a program of these lines, with the jobs imported."""
        program = "\n".join(["from shop.mails import *", "from shop.deep.reports import *", *lines])
        subprocess.run([sys.executable, "-c", program], cwd=self.home, env=self.env, check=True, timeout=60)

    def start(self, *words: str, **env: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "nobroker", *words],
            cwd=self.home,
            env={**self.env, **env},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __call__(self, *words: str, **env: str) -> Ran:
        with self.start(*words, **env) as process:
            out, err = process.communicate(timeout=60)
        return Ran(process.returncode, out, err)

    def jobs(self, directory: str = "data", name: str = "default") -> list[Any]:
        with Queue(self.home / directory, name) as queue:
            assert list(queue.check()) == []
            return queue.list_jobs()


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def wait_for(process: subprocess.Popen[str], words: str) -> None:
    assert process.stderr is not None
    said = []
    for line in process.stderr:
        said.append(line)
        if words in line:
            return
    raise AssertionError("".join(said))


def test_once_works_off_what_is_due_and_prints_the_counts(project: Project) -> None:
    project.python("send.perform_later('ann')", "send.set(wait=3600).perform_later('bob')")
    ran = project("run", "shop", "--once")
    assert (ran.code, ran.out) == (0, "leased 1  succeeded 1  failed 0  dead 0  lost leases 0\n")
    assert [(job.state, job.result) for job in project.jobs()] == [("done", "sent to ann"), ("ready", None)]


@pytest.mark.parametrize(
    "words",
    [["shop.mails:app"], ["shop.mails", "--app", "shop.base:app"], ["both", "--app", "shop.base:app"]],
    ids=" ".join,
)
def test_which_application(project: Project, words: Sequence[str]) -> None:
    project.python("send.perform_later('ann')")
    ran = project("--json", "run", "--once", *words)
    assert ran.json == {"leased": 1, "succeeded": 1, "failed": 0, "dead": 0, "lost_leases": 0}


def test_the_application_whose_jobs_the_packages_define_comes_first(project: Project) -> None:
    front = "import other.jobs\nfrom shop.base import app\n@app.job\ndef f(): ...\n"
    (project.home / "front.py").write_text(front)
    ran = project("run", "front", "--once")
    assert ran.code == 0, ran.err
    assert not (project.home / "theirs").exists()


def test_only_the_queues_that_were_named(project: Project) -> None:
    project.python("send.perform_later('ann')", "fail.perform_later('no')")
    ran = project("--json", "run", "shop", "--once", "--queues", "mails, mial")
    assert ran.json["leased"] == 1
    assert "event=run.queue_unknown queue=mial did_you_mean=mails" in ran.err
    assert [job.state for job in project.jobs()] == ["done", "ready"]


def test_what_is_not_typed_is_said_by_the_environment_and_the_file(project: Project) -> None:
    project.python("send.perform_later('ann')", "fail.perform_later('no')", "app.queue.enqueue('raw')")
    (project.home / "queue.yml").write_text('workers: [{queues: "ma*"}]')
    assert project("--json", "run", "shop", "--once").json["succeeded"] == 1
    ran = project("--json", "run", "shop", "--once", NOBROKER_QUEUES="*", NOBROKER_QUEUE="x")
    assert ran.json["failed"] == 1
    assert "event=run.config_doubtful nobody reads NOBROKER_QUEUE; did you mean NOBROKER_QUEUES?" in ran.err
    assert sorted((job.lane, str(job.state)) for job in project.jobs()) == [
        ("", "ready"),
        ("default", "dead"),
        ("mails", "done"),
    ]


def test_everything_in_one_queue(project: Project) -> None:
    project.env["NOBROKER_FORCE_QUEUE"] = "branch_x"
    project.python("send.perform_later('ann')", "last.perform_later(0)")
    ran = project("--json", "run", "shop", "--once", "--queues", "mails")
    assert ran.json["succeeded"] == 2
    assert "queues=branch_x threads=1" in ran.err
    assert {job.lane for job in project.jobs()} == {"branch_x"}


def test_threads_and_batches(project: Project) -> None:
    project.python("app.perform_all_later([Report.build() for _ in range(3)])")
    assert project("--json", "run", "shop", "--once", "--threads", "3").json["succeeded"] == 3
    project.python("app.perform_all_later([send.build(n) for n in range(7)])")
    assert project("--json", "run", "shop", "--once", "--batch", "4").json["succeeded"] == 7


def test_one_event_a_line_and_nothing_raw(project: Project) -> None:
    project.python(r"fail.perform_later('red \x1b[31m\nand a second line')")
    ran = project("run", "shop", "--once")
    assert ran.code == 0
    assert "\x1b" not in ran.err
    lines = ran.err.splitlines()
    assert len(lines) == len([line for line in lines if line[:2] == "20"]), ran.err
    assert [word for line in lines for word in ("run.started", "job_failed", "stopped ") if word in line] == [
        "run.started",
        "job_failed",
        "stopped ",
    ]


def test_a_log_that_the_package_set_up_is_left_alone(project: Project) -> None:
    ran = project("run", "loud", "--once")
    assert ran.code == 0
    assert {line.partition(" ")[0] for line in ran.err.splitlines()} == {"MINE"}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_the_job_end(project: Project, number: int) -> None:
    project.python("last.perform_later(0.5)", "last.perform_later(0.5)")
    with project.start("--json", "run", "shop") as process:
        wait_for(process, "it runs")
        process.send_signal(number)
        out, _ = process.communicate(timeout=20)
    assert process.returncode == 0
    assert json.loads(out)["succeeded"] == 1
    assert [job.state for job in project.jobs()] == ["done", "ready"]


def test_a_second_signal_lets_the_job_go(project: Project) -> None:
    project.python("last.perform_later(60)")
    with project.start("run", "shop") as process:
        wait_for(process, "it runs")
        process.send_signal(signal.SIGTERM)
        wait_for(process, "stopping")
        time.sleep(0.15)  # sooner it would be the same signal once more
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=20)
    assert process.returncode == 1
    (job,) = project.jobs()
    assert (job.state, job.attempts) == ("ready", 0)


def test_a_job_that_ends_the_program(project: Project) -> None:
    project.python("leave.perform_later()")
    ran = project("run", "shop")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.endswith("error: the job raised SystemExit(4); its job was nacked and the worker ended\n")
    assert [job.state for job in project.jobs()] == ["dead"]


@pytest.mark.parametrize(
    "words, says",
    [
        (["no_such_package"], "No module named 'no_such_package'. Jobs in it are not registered (looked in "),
        (["needs"], "No module named 'no_such_library'. Jobs in it are not registered\n"),
        (["broken"], "could not import broken: SyntaxError: "),
        (["leaves"], "could not import leaves: SystemExit: bye. "),
        (["misspelt"], "did you mean queue?"),
        (["twice"], "two jobs are called 'send': one in shop.mails (line 5), one in twice (line 2)"),
        (["./shop/"], "write it as Python imports it: shop"),
        (["bare.py"], "write it as Python imports it: bare"),
        (["shop-x"], "expected the dotted name of a package"),
        (["empty"], "empty/__init__.py): put @app.job before a function there"),
        (["both"], "2 applications: shop.base:app, other.jobs:mine; say which, for example --app "),
        (["shop.mails:app", "other.jobs:mine"], "say which, for example --app shop.mails:app"),
        (["bare:app"], "bare:app has no jobs yet; name the packages that they are in, too"),
        (["bare:number"], "'bare:number' is a int, not an App"),
        (["shop:app"], "'shop:app' is nothing, not an App"),
        (["shop", "--app", "base"], "--app takes MODULE:NAME, such as shop:app, not 'base'"),
        (["shop", "--queues", "mails,"], "--queues: names with commas between them, or a list of names, not"),
        (["shop", "--queues", "m*s"], "--queues: 'm*s': an asterisk stands at the end of a name only"),
        (["shop", "--shutdown-timeout", "soon"], "--shutdown-timeout: it is seconds, or such as 5s"),
        (["shop", "--config", "none.yml"], "--config: there is no file 'none.yml'"),
        (["shop", "--config", "wrong.yml"], "wrong.yml, line 2, workers[0].thread: there is no such key"),
        (["no_such_package", "--config", "wrong.yml"], "wrong.yml, line 2"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)  # fmt: skip
def test_nothing_is_begun(project: Project, words: list[str], says: str) -> None:
    ran = project("run", *words)
    assert ran.code == 2, ran
    assert says in ran.said_in_one_line()
    assert not (project.home / "data").exists()


@pytest.mark.parametrize(
    "words",
    [[], ["shop", "-t", "0"], ["shop", "--batch", "many"], ["shop", "--processes", "0"], ["shop", "--quu"]],
    ids=" ".join,
)
def test_wrong_usage(project: Project, words: list[str]) -> None:
    ran = project("run", *words)
    assert (ran.code, ran.out) == (2, "")
    assert "nobroker run --help" in ran.err
    assert not (project.home / "data").exists()


@pytest.mark.parametrize("what", ["a file", "damaged"])
def test_a_directory_that_can_not_be_used(project: Project, what: str) -> None:
    if what == "a file":
        (project.home / "data").write_text("")
    else:
        project.python("send.perform_later('ann')", "app.close()")
        (segment,) = (project.home / "data").glob("*.seg")
        raw = bytearray(segment.read_bytes())
        raw[3] ^= 255  # in its header
        segment.write_bytes(raw)
    ran = project("run", "shop", "--once")
    assert ran.code == 2, ran
    assert ran.err.count("error: ") == 1
    assert "data" in ran.err


def test_a_typed_directory_and_queue_win_and_the_environment_does_not(project: Project) -> None:
    project.python("app.path, app.name = 'typed', 'own'", "send.perform_later('ann')")
    typed = ("--dir", "typed", "-q", "own")
    ran = project("--json", "run", "shop", "--once", *typed, NOBROKER_DIR="environment")
    assert ran.json["succeeded"] == 1
    assert not (project.home / "data").exists()
    assert project("--json", "run", "shop", "--once", NOBROKER_DIR="environment").json["leased"] == 0
    assert (project.home / "data").is_dir()
    assert not (project.home / "environment").exists()


def test_a_service_that_wants_to_be_replaced(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project.home)
    monkeypatch.syspath_prepend(str(project.home))
    monkeypatch.setattr(Service, "recycling", "a reason")
    (project.home / "run_test_recycles.py").write_text(
        "from nobroker import App\napp = App('data')\n@app.job\ndef f(): ...\n"
    )
    assert main(["run", "run_test_recycles", "--once"]) == 75


def test_the_help_has_examples(project: Project) -> None:
    ran = project("run", "--help")
    assert ran.code == 0
    assert "Examples:" in ran.out
    assert "nobroker run myshop.jobs --once" in ran.out.replace("--json ", "")


def test_each_job_has_its_line_as_text_or_as_json(project: Project) -> None:
    project.python("send.set(job_id='one').perform_later(1)", "fail.set(job_id='two').perform_later('no')")
    ran = project("run", "shop", "--once", "--log-format", "json")
    lines = [json.loads(line) for line in ran.err.splitlines()]
    found = {line["id"]: line for line in lines if line["event"] == "job.finished"}
    assert {(one["class"], one["queue"], one["attempt"], one["outcome"]) for one in found.values()} == {
        ("send", "mails", 1, "done"),
        ("fail", "default", 1, "dead"),
    }
    assert all(0 < one["ms"] < 60_000 for one in found.values())
    assert {"run.started", "job_failed"} <= {line["event"] for line in lines}
    project.python("send.set(job_id='three').perform_later('ann')")
    ran = project("run", "shop", "--once")
    assert " event=job.finished id=three class=send queue=mails attempt=1 outcome=done ms=" in ran.err
