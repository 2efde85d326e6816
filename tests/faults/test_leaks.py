"""Descriptors, maps and memory after a thousand openings, faults and rotations are what they were before."""

from __future__ import annotations

import gc
import logging
import sys
from functools import partial
from pathlib import Path

import pytest

from nobroker import NobrokerError, Queue
from tests.faults.dying import failing_at
from tests.faults.stores import SMALL, Place, fill, flipped, leave, outcome, scratch, spans
from tests.faults.trial import Trial

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts by /proc")
WARM = 40


def used() -> tuple[int, int, int]:
    """Open descriptors, maps of queue files, resident KiB."""
    gc.collect()
    descriptors = sum(1 for _ in Path("/proc/self/fd").iterdir())
    maps = sum("/default." in line for line in Path("/proc/self/maps").read_text().splitlines())
    status = Path("/proc/self/status").read_text()
    resident = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))
    return descriptors, maps, resident


def test_openings_faults_and_rotations(trial: Trial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("nobroker_mmap", "nobroker.queue"):  # pytest keeps what is logged, errors and all
        monkeypatch.setattr(logging.getLogger(name), "disabled", True)
    with scratch(tmp_path) as directory:
        place = Place(directory)
        with place.queue() as queue:
            fill(queue, 6, 8000)
        (directory / "default.wake").unlink(missing_ok=True)
        place.keep()
        path = directory / "default.000001.seg"
        places = spans(path)
        baseline = used()
        for number, rng in trial.rounds(1000):
            if trial.figures["openings"] == WARM:
                baseline = used()
            kind = number % 5
            if kind == 0:
                place.answers()
            elif kind == 1:
                first, end = rng.choice(places[:-1])
                with flipped(path, rng.randrange(first, end), rng.randrange(8)):
                    outcome(place.answers)
                    outcome(lambda: place.answers(read_only=True))
            elif kind == 2:
                queue = place.queue()
                queue.enqueue_many([b"x" * 500] * 130)
                queue.lease(1, wait=0.001, lanes=["nobody"])
                queue.compact() if number % 2 else queue.close()
                queue.close()
            elif kind == 3:
                queue = place.queue()
                with failing_at(rng.randint(1, 30)):
                    for verb in (partial(queue.enqueue_many, [b"y" * 900] * 20), queue.compact, queue.close):
                        trial.count("faults", isinstance(outcome(verb), NobrokerError))
                leave(queue)
            else:
                for options in ({"read_only": True}, {"segment_size": SMALL // 2 + 1}, {"name": "no"}):
                    try:
                        Queue(directory, **{"clock": place.clock, "read_only": True, **options}).close()  # type: ignore[arg-type]
                    except (NobrokerError, ValueError):
                        trial.count("faults")
            place.restore()
            trial.count("openings")
        descriptors, maps, resident = used()
        if trial.figures["openings"] > WARM:
            assert descriptors == baseline[0], "descriptors leak"
            assert maps == baseline[1], "maps leak"
            assert resident - baseline[2] < 24 * 1024, f"{resident - baseline[2]} KiB more"
