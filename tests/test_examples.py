"""The examples run, end by themselves, and show what they say."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from nobroker import Queue

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples"

pytestmark = pytest.mark.processes


def run(directory: Path, *command: str) -> str:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    env.pop("NOBROKER_DIR", None)
    done = subprocess.run(
        [sys.executable, *command],
        cwd=directory,
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def example(directory: Path, name: str) -> str:
    return run(directory, str(EXAMPLES / name))


def states(directory: Path) -> dict[str, int]:
    """Counts of the jobs that an example left behind, whose log is whole."""
    with Queue(directory) as queue:
        assert list(queue.check()) == []
        stats = queue.stats()
        return {name: getattr(stats, name) for name in ("ready", "delayed", "leased", "dead")}


NOTHING_LEFT = {"ready": 0, "delayed": 0, "leased": 0, "dead": 0}


def test_a_web_application_answers_before_the_work_is_done(tmp_path: Path) -> None:
    lines = [line for line in example(tmp_path, "web.py").splitlines() if line[:2] == "20"]
    assert re.fullmatch(r"202 \{'job': 'nb-\w+-1'\}", lines[0])
    assert "202 {'state': 'leased', 'progress': 'line 2'}" in lines
    assert lines[-1] == "200 {'state': 'done', 'words': [['the', 5], ['queue', 2], ['jobs', 2]]}"
    assert states(tmp_path / "web-data") == NOTHING_LEFT


def test_a_batch_of_pictures_ends_in_one_contact_sheet(tmp_path: Path) -> None:
    shown = example(tmp_path, "pictures.py").splitlines()
    assert shown[0] == "12 jobs, running, 0%"
    assert "succeeded=13, failed=0" in shown[1]
    assert shown[2:] == ["12 jobs, succeeded, 100%", f"{Path('pictures/sheet.png')}: 480 x 360"]
    assert len(list((tmp_path / "pictures").glob("*.small.png"))) == 12
    assert states(tmp_path / "pictures-data") == NOTHING_LEFT


def test_an_import_that_is_killed_goes_on_where_it_was(tmp_path: Path) -> None:
    shown = example(tmp_path, "importing.py")
    first, second = shown.split("attempt 2 ")
    assert first.startswith("attempt 1 ")
    assert first.count("making the tables") == 1
    assert "making the tables" not in second
    skipped = re.search(r"skipping (\d+) rows that are there", second)
    assert skipped is not None
    # It was killed at row 100 or later; its last checkpoint is up to 100 ms older, at 3 ms or more for a row.
    assert 60 <= int(skipped[1]) < 300
    assert "300 rows are in the file," in second
    assert shown.splitlines()[-1] == "300 in the database"
    assert states(tmp_path / "importing-data") == NOTHING_LEFT


def test_the_quickstart_of_jobs(tmp_path: Path) -> None:
    """As the README has it, command by command."""
    shutil.copytree(EXAMPLES / "quickstart", tmp_path, dirs_exist_ok=True)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    programs = re.findall(r'^python -c "(.*)"$', readme, re.MULTILINE)
    assert len(programs) == 2
    job_id = run(tmp_path, "-c", programs[0]).strip()
    assert re.fullmatch(r"nb-\w+-1", job_id)
    worked = run(tmp_path, "-m", "nobroker", "run", "jobs", "--once")
    assert worked == "leased 2  succeeded 2  failed 0  dead 0  lost leases 0\n"
    assert run(tmp_path, "-c", programs[1].replace("nb-...-1", job_id)) == "Hello, Ada!\n"
    assert states(tmp_path / "data") == NOTHING_LEFT


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_an_example_begins_with_what_it_does_and_how_it_is_run(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    said = ast.get_docstring(ast.parse(text)) or ""
    assert said.splitlines()[0].endswith(".")
    if path.name not in ("first.py", "work.py"):  # those two are explained in the README
        assert re.search(rf"\n    pip install .+\n    python examples/{path.name}\n", said), said
    assert len(text.splitlines()) <= 130
