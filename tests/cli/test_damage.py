"""What a person is told of each kind of damage: what, where, what is lost, what to type."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nobroker.cli import output
from nobroker.stores import log
from nobroker_mmap import mounts
from nobroker_mmap.control import POISON, ControlPage

from .conftest import CommandLine, tree
from .harm import FIRST, IN_FIRST, JOBS, SECOND, flip, newer_version, place_of, two_segments


@pytest.fixture
def line(nobroker: CommandLine) -> CommandLine:
    two_segments(nobroker.dir)
    return nobroker


def _flipped(directory: Path) -> None:
    flip(directory / FIRST, place_of(directory / FIRST, 3))


def _header(directory: Path) -> None:
    flip(directory / FIRST, 20)


def _cut_first(directory: Path) -> None:
    os.truncate(directory / FIRST, 30_000)


def _cut_newest(directory: Path) -> None:
    os.truncate(directory / SECOND, 10_000)


def _first_gone(directory: Path) -> None:
    (directory / FIRST).unlink()


def _newest_gone(directory: Path) -> None:
    (directory / SECOND).unlink()


def _anothers(directory: Path) -> None:
    two_segments(directory.parent / "other")
    shutil.copy(directory.parent / "other" / FIRST, directory / FIRST)


def _linked(directory: Path) -> None:
    outside = directory.parent / "outside"
    (directory / FIRST).rename(outside)
    (directory / FIRST).symlink_to(outside)


# What is done to the files; where it is told, what is said, the numbers of the jobs that are lost.
DAMAGE: list[tuple[Callable[[Path], None], str, str, list[list[int]]]] = [
    (_flipped, FIRST, "no record verifies here", [[4, 4]]),
    (_header, FIRST, "checksum of the header", []),
    (_cut_first, FIRST, "the file has 30000 bytes", [[10, 20]]),
    (_cut_newest, SECOND, "the file has 10000 bytes", [[24, 30]]),
    (_first_gone, FIRST, "the file is missing", [[1, 20]]),
    (_newest_gone, SECOND, "the file is missing", [[21, 30]]),
    (_anothers, FIRST, "a segment of another queue", [[1, 20]]),
    (_linked, FIRST, "not a regular file", [[1, 20]]),
]
KINDS = [harm.__name__.strip("_") for harm, _, _, _ in DAMAGE]


@pytest.mark.parametrize("harm, name, words, lost", DAMAGE, ids=KINDS)
def test_check_recover_and_salvage_tell_the_same(
    line: CommandLine, harm: Callable[[Path], None], name: str, words: str, lost: list[list[int]]
) -> None:
    harm(line.dir)
    before = tree(line.dir)
    found = [finding for finding in line.json("check", code=1) if finding["severity"] == "damage"]
    assert any(finding["path"].endswith(name) and words in finding["message"] for finding in found)
    assert [keys for finding in found for keys in finding["keys"]] == lost
    assert {finding["advice"] for finding in found} == {
        f"nobroker --dir {line.dir} -q default recover --salvage"
    }
    expected = sum(finding["length"] for finding in found)
    ran = line("check")
    assert ran.code == 1
    assert words in ran.out
    assert f"{expected:,} bytes lost; nothing was changed" in ran.err
    looked = line.json("recover", code=1)
    assert looked["findings"] == line.json("check", code=1)
    assert looked["damage"] != "none"
    assert tree(line.dir) == before

    report = line.json("recover", "--salvage")
    assert report["bytes_lost"] == expected
    assert [list(keys) for loss in report["losses"] for keys in loss["keys"]] == lost
    assert report["total"] == JOBS - sum(last - first + 1 for first, last in lost)
    gone = {number - 1 for first, last in lost for number in range(first, last + 1)}
    assert [job["payload"]["n"] for job in line.json("list")] == [n for n in range(JOBS) if n not in gone]
    assert line("enqueue", "x").code == 0


@pytest.mark.parametrize("harm", [harm for harm, _, _, _ in DAMAGE], ids=KINDS)
def test_nothing_is_written_before_somebody_decides(line: CommandLine, harm: Callable[[Path], None]) -> None:
    harm(line.dir)
    segments = {name: data for name, (data, _) in tree(line.dir).items() if name.endswith(".seg")}
    for words in (["enqueue", "x"], ["lease"], ["compact"]):
        ran = line(*words)
        assert ran.code in (0, 1)
        assert "Traceback" not in ran.err
        if harm is not _flipped:  # an opening does not read what a snapshot stands for
            assert (ran.code, ran.out) == (1, ""), words
            assert "recover --salvage" in ran.err
            after = {name: data for name, (data, _) in tree(line.dir).items() if name.endswith(".seg")}
            assert after == segments
    assert line("recover", "--salvage").code == 0


def test_what_stands_before_the_damage_is_shown(line: CommandLine) -> None:
    for harm in (_newest_gone, _cut_newest):
        work = CommandLine(line.dir.parent / harm.__name__, line._monkeypatch)
        shutil.copytree(line.dir, work.dir)
        shutil.copy(line.dir / "default.lock", work.dir)
        harm(work.dir)
        ran = work("--json", "stats")
        assert ran.code == 0
        assert ran.json["total"] >= IN_FIRST
    harm(line.dir)
    ran = line("--json", "stats")
    assert (ran.code, ran.json["total"]) == (0, IN_FIRST)
    assert "before the damage" in ran.err
    assert line("recover", "--salvage").code == 0


def test_another_queues_jobs_are_never_shown(line: CommandLine) -> None:
    _anothers(line.dir)
    ran = line("list")
    assert (ran.code, ran.out) == (1, "")
    report = line.json("recover", "--salvage")
    [kept] = report["kept_files"]
    assert Path(kept).read_bytes() == (line.dir.parent / "other" / FIRST).read_bytes()


def test_numbers_bound_what_no_index_tells(line: CommandLine) -> None:
    """In the newest segment, with the snapshot gone, the holes in the numbering are all there is."""
    (line.dir / "default.snap").unlink()
    flip(line.dir / SECOND, place_of(line.dir / SECOND, 25))
    [finding] = line.json("check", code=1)
    assert (finding["keys"], finding["keys_known"]) == ([], False)
    assert finding["lost"] == "at most 1 job: number 26"
    ran = line("recover", "--salvage")
    assert "at most 1 job: number 26" in ran.out
    assert line.json("stats")["total"] == JOBS - 1


def test_what_held_no_job_is_told_as_that(nobroker: CommandLine) -> None:
    with nobroker.queue() as queue:
        queue.enqueue(1)
        queue.ack(queue.lease()[0], result="a result to find it by")
    path = nobroker.dir / FIRST
    flip(path, path.read_bytes().index(b"a result to find it by"))
    [finding] = [found for found in nobroker.json("check", code=1) if found["severity"] == "damage"]
    assert finding["lost"].startswith("no job; a lease, an ack or a retry")
    assert nobroker("recover", "--salvage").code == 0
    assert nobroker.json("stats")["done"] == 0


def test_a_block_for_each_finding_on_a_terminal(line: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    _flipped(line.dir)
    with monkeypatch.context() as patch:
        patch.setattr(output, "on_terminal", lambda: True)
        shown = line("check").out
    assert line("recover", "--salvage").code == 0
    first, what, lost, do = shown.splitlines()
    assert first.startswith("DAMAGE ")
    assert first.endswith(", offset 9,712")
    assert (what.split()[0], lost.split()[0], do.split()[0]) == ("what", "lost", "do")
    assert lost.endswith("1 job: number 4")
    assert "recover --salvage" in do


# -- what is no damage ----------------------------------------------------------------------------------


def test_a_torn_tail_needs_nobody(line: CommandLine) -> None:
    path = line.dir / SECOND
    end = -(-len(path.read_bytes().rstrip(b"\0")) // 8) * 8
    with path.open("r+b") as file:
        file.seek(end)
        file.write(b"NBr1" + os.urandom(300))
    [finding] = line.json("check")
    assert (finding["severity"], finding["offset"]) == ("warning", end)
    assert finding["message"] == "an unfinished write that nobody was told of"
    assert finding["advice"].startswith("nothing")
    assert line("check").code == line("recover").code == 0
    assert line("enqueue", "x").code == 0
    assert line.json("check") == []
    [torn] = line.dir.glob("*.torn")
    assert torn.stat().st_size == 304


@pytest.mark.parametrize("name", ["default.snap", "default.000001.idx"])
def test_a_damaged_cache_is_a_note(line: CommandLine, name: str) -> None:
    flip(line.dir / name, 100)
    [finding] = line.json("check")
    assert (finding["severity"], finding["length"]) == ("note", 0)
    assert finding["advice"].startswith("nothing")
    assert line.json("stats")["total"] == JOBS
    assert line.json("recover", "--salvage")["losses"] == []
    (line.dir / name).unlink(missing_ok=True)


@pytest.mark.parametrize("name", ["default.manifest", "default.lock", "default.sync", "default.open"])
@pytest.mark.parametrize("harm", [Path.unlink, lambda path: path.write_bytes(b"")], ids=["gone", "empty"])
def test_files_that_may_be_lost(line: CommandLine, name: str, harm: Callable[[Path], Any]) -> None:
    harm(line.dir / name)
    assert line.json("check") == []
    assert line("recover").code == 0
    assert line("enqueue", "x").code == 0
    assert line.json("stats")["total"] == JOBS + 1


def test_a_failed_sync(line: CommandLine) -> None:
    ControlPage(str(line.dir / "default.lock"), read_only=False).words[POISON] = 1
    [finding] = line.json("check", code=1)
    assert (finding["severity"], finding["message"].partition(";")[0]) == ("warning", "a sync failed")
    assert "stop every process" in finding["advice"]
    assert "no job is lost" in line("check").err
    assert line("recover").code == 0
    assert line("enqueue", "x").code == 0
    assert line.json("check") == []
    assert line.json("stats")["total"] == JOBS + 1


def test_a_copied_directory(line: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = CommandLine(line.dir.parent / "copy", monkeypatch)
    shutil.copytree(line.dir, copy.dir)
    assert copy.json("check") == []
    assert copy("enqueue", "x").code == 0
    assert (copy.json("stats")["total"], line.json("stats")["total"]) == (JOBS + 1, JOBS)
    assert copy.json("list")[-1]["seq"] > line.json("list")[-1]["seq"] + 1  # no number is given out twice


def test_a_newer_version_is_left_alone(line: CommandLine) -> None:
    raw = {path: path.read_bytes()[:128] for path in line.dir.glob("*.seg")}
    for path in raw:
        newer_version(path)
    before = tree(line.dir)
    for words in (["check"], ["recover"], ["stats"], ["enqueue", "x"], ["recover", "--salvage"]):
        ran = line(*words)
        assert ran.code == 1, words
        assert "format version 2" in ran.out + ran.err
        assert "update nobroker" in ran.out + ran.err
        assert "recover --salvage" not in ran.out + ran.err
    after = tree(line.dir)
    assert {name: after[name] for name in (FIRST, SECOND)} == {name: before[name] for name in (FIRST, SECOND)}
    for path, header in raw.items():
        with path.open("r+b") as file:
            file.write(header)


def test_every_segment_gone_is_not_no_queue(line: CommandLine) -> None:
    for path in line.dir.glob("*.seg"):
        path.unlink()
    for words in (["check"], ["recover"], ["stats"], ["recover", "--salvage"], ["lease"], ["enqueue", "x"]):
        ran = line(*words)
        assert ran.code == 1, words
        assert "default.lock" in ran.said_in_one_line()
        assert "begin an empty queue" in ran.err
    for path in line.dir.iterdir():
        path.unlink()
    assert line("enqueue", "x").code == 0


@pytest.mark.processes
def test_salvage_while_somebody_has_it_open(line: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    from nobroker_mmap import salvage

    with line.queue() as queue:
        queue.stats()
        _flipped(line.dir)
        monkeypatch.setitem(salvage.salvage.__kwdefaults__, "lock_timeout", 0.05)
        ran = line("recover", "--salvage")
        assert ran.code == 1
        assert "somebody has the queue open; nothing was changed" in ran.err
    assert line("recover", "--salvage").code == 0


@pytest.mark.parametrize("kind, everywhere", [("nfs", True), ("overlay", False)])
def test_a_place_that_is_none_for_a_queue(
    line: CommandLine,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    kind: str,
    everywhere: bool,
) -> None:
    table = line.dir.parent / "mounts"
    table.write_text(f"1 1 8:1 / / rw - {kind} source rw\n")
    monkeypatch.setattr(mounts, "TABLE", str(table))
    monkeypatch.setattr(log, "_looked_at", set())
    assert line("enqueue", "x").code == 0
    assert [kind in record.getMessage() for record in caplog.records] == [True] * everywhere
    assert (f"is on {kind}" in line("check").err) == everywhere
    monkeypatch.setattr(output, "on_terminal", lambda: True)
    ran = line("check")
    assert ran.code == 0
    assert f"is on {kind}" in ran.err
