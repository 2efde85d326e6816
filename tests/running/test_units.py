"""The unit files for systemd: systemd understands them, and what they start exists with its options."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest

from nobroker.cli.main import build
from nobroker.cli.settings import Settings

FOLDER = Path(__file__).resolve().parent.parent.parent / "examples" / "systemd"
UNITS = sorted(FOLDER.glob("*.service")) + sorted(FOLDER.glob("*.timer"))
PROGRAM = "/srv/shop/venv/bin/nobroker"


def test_there_are_units() -> None:
    assert {unit.name for unit in UNITS} >= {"shop-jobs.service", "shop-jobs-backup.timer"}


def test_systemd_understands_them(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not here, so the unit files are not verified")
    for unit in UNITS:  # the program that they start is not installed where they say
        text = unit.read_text().replace(PROGRAM, sys.executable)
        (tmp_path / unit.name).write_text(text)
    verified = subprocess.run(
        [analyze, "verify", "--man=no", *(str(tmp_path / unit.name) for unit in UNITS)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (verified.returncode, verified.stdout + verified.stderr) == (0, "")


@pytest.mark.parametrize(
    "unit", [unit for unit in UNITS if unit.suffix == ".service"], ids=lambda unit: unit.name
)
def test_what_they_start_exists(unit: Path) -> None:
    (line,) = re.findall(r"^ExecStart=(.*)$", unit.read_text(), re.MULTILINE)
    words = shlex.split(line.replace("%%", "%"))
    if words[:2] == ["/bin/sh", "-c"]:
        words = shlex.split(words[2].removeprefix("exec "))
    assert words[0] == PROGRAM
    group = build()
    context = click.Context(group, info_name="nobroker", obj=Settings())
    _, rest, _ = group.make_parser(context).parse_args(words[1:])
    command = group.get_command(context, rest[0])
    assert command is not None, rest[0]
    command.make_parser(click.Context(command, parent=context)).parse_args(rest[1:])


def test_systemd_waits_for_longer_than_jobs_may_take_to_end() -> None:
    text = (FOLDER / "shop-jobs.service").read_text()
    (patience,) = re.findall(r"^TimeoutStopSec=(\d+)$", text, re.MULTILINE)
    (jobs,) = re.findall(r"--shutdown-timeout (\d+)s", text)
    assert int(patience) > int(jobs)
