"""The demo proves what it says, and fails when something it says is not so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nobroker import Queue
from nobroker.cli.demo_show import Claim, Show, standard_library

from .conftest import CommandLine

FILES = 600


@pytest.mark.processes
@pytest.mark.slow
@pytest.mark.skipif("sys.platform == 'win32'", reason="SIGKILL")
def test_a_small_demo_keeps_its_queue_and_dump(nobroker: CommandLine) -> None:
    ran = nobroker.process("--json", "demo", "--files", str(FILES), timeout=120)
    assert ran.code == 0, ran
    found = ran.json
    assert found["ok"] is True
    assert all(claim["true"] for claim in found["claims"])
    assert found["files"] == found["exact"] == FILES
    assert found["recovered"] == 10
    assert found["dead"] == 2
    assert found["returned"] >= 1
    assert found["bytes_reclaimed"] > 0
    lines = (nobroker.dir / "demo.dump.jsonl").read_text("ascii").splitlines()
    assert len([json.loads(line) for line in lines]) == found["dump_lines"]
    with Queue(nobroker.dir, "demo", read_only=True) as queue:
        assert list(queue.check()) == []
    again = nobroker("demo")
    assert again.code == 1
    assert "already" in again.said_in_one_line()


def test_the_files_are_real_and_many() -> None:
    root, paths = standard_library()
    assert len(paths) == len(set(paths)) > 500
    assert str(root / "os.py") in paths
    assert not [path for path in paths if "site-packages" in Path(path).parts]


def test_one_false_claim_is_enough_to_fail(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    show = Show(tmp_path, "demo", None, quiet=False)
    assert not show.all_true()
    show.claims.append(Claim("water is wet", True))
    assert show.all_true()
    show.claims.append(Claim("two and two are five", False))
    assert not show.all_true()
    show.print_summary(kept=False)
    out = capsys.readouterr().out
    assert "NO   two and two are five" in out
    assert "NOT all of it was true" in out
