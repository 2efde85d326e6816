"""The control page by itself."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nobroker_mmap import control as ctl
from nobroker_mmap import format as fmt
from nobroker_mmap.control import ControlPage
from tests.unit.mmap.harness import (
    open_log,
)


def test_what_a_page_says(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    page = log.control
    page.suspended, page.careful_until, page.grace_until = 5, 6, 7
    reader = ControlPage(log.names.lock, read_only=True)
    assert (reader.suspended, reader.careful_until, reader.grace_until) == (5, 6, 7)
    for field, name in ((ctl.CAREFUL, "careful_until"), (ctl.GRACE, "grace_until")):
        page.words[field + ctl.AGAIN] += 2**40
        assert getattr(reader, name) in (6, 7), "the smaller of the two"
        page.words[field] += 2**41
        assert getattr(reader, name) - 2**40 in (6, 7)
    tip = ctl.Tip(log.position, 1, 2, 3, 4)
    assert reader.tip() is None
    page.say_tip(tip)
    assert reader.tip() == tip
    page.words[ctl.TIP_NEXT] += 1
    assert reader.tip() is None, "not as it was said"
    page.say_tip(tip._replace(lsn=tip.lsn + 8))
    assert reader.tip() is None, "not of the end"
    assert reader.sound()
    assert reader.valid(log.boot)
    page.zero()
    assert not reader.sound()
    assert bytes(reader.words[: ctl.CAREFUL + ctl.AGAIN + 1]).strip(b"\0") == b""
    log._release_files()


def test_a_page_that_was_cut_short(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    for size in (0, 1, 4095):
        path.write_bytes(b"x" * size)
        with pytest.raises(OSError, match="shorter than a control page"):
            ControlPage(str(path), read_only=True)
        assert path.stat().st_size == size
    page = ControlPage(str(path), read_only=False)
    assert page.cut_short
    assert path.stat().st_size == fmt.CONTROL_SIZE
    assert page.reachable()
    os.truncate(path, 4095)
    assert not page.reachable()
