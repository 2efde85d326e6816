"""Caches that are older, of another time, of another queue, or of a version to come, beside a good log: the
answers are those of a full scan.
"""

from __future__ import annotations

import itertools
import shutil
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from xxhash import xxh3_64

from nobroker_mmap import format as fmt
from tests.faults.stores import Place, fill, leave, outcome, scratch
from tests.faults.trial import Trial

KINDS = ("idx", "snap", "manifest", "lock")
MOMENTS = 5


def stages(root: Path, rng: Random | None = None) -> list[Place]:
    """One queue at several moments, closed and not; a copy that went its own way; another queue. With random
    numbers, each time of other sizes.
    """
    found: list[Place] = []
    jobs = [rng.randint(3, 20) for _ in range(5)] if rng else [6, 12, 18, 12, 12]
    size = rng.choice([500, 2000, 5000]) if rng else 5000
    live = Place(root / "live")

    def moment(place: Place) -> None:
        copy = Place(root / str(len(found)), place.clock)
        shutil.copytree(place.directory, copy.directory, ignore=shutil.ignore_patterns("*.wake"))
        copy.keep()
        found.append(copy)

    for turn in range(3):
        queue = live.queue()
        fill(queue, jobs[turn], size)
        if turn == 2:
            for job in queue.lease(4):
                queue.ack(job)
            queue.compact()
        leave(queue) if turn == 1 else queue.close()
        moment(live)
    copy = Place(root / "copy", live.clock)
    shutil.copytree(found[0].directory, copy.directory)
    with copy.queue() as queue:
        fill(queue, jobs[3], size)
    moment(copy)
    other = Place(root / "other", live.clock)
    with other.queue() as queue:
        fill(queue, jobs[4], size)
    moment(other)
    return found


def answers_of_a_scan(place: Place) -> Any:
    """Without any cache."""
    for path in place.files():
        if path.suffix != ".seg":
            path.unlink()
    seen = outcome(partial(place.answers, read_only=True))
    place.restore()
    return seen


def lay(place: Place, donor: Place, kinds: tuple[str, ...]) -> None:
    """Put the caches of one moment beside the log of another."""
    for path in place.files():
        if path.suffix[1:] in kinds:
            path.unlink()
    for name, data in donor.kept.items():
        if name.rsplit(".", 1)[1] in kinds:
            (place.directory / name).write_bytes(data)


def test_all_pairs(trial: Trial, tmp_path: Path) -> None:
    """The log of one moment, each choice of kinds of caches from another, all ordered pairs of moments. Again
    in long runs, with other queues.
    """
    with scratch(tmp_path) as root:
        moments: list[Place] = []
        expected: list[Any] = []
        made = -1
        choices = [
            pick for count in range(1, len(KINDS) + 1) for pick in itertools.combinations(KINDS, count)
        ]
        pairs = [
            (log, caches, kinds)
            for log, caches in itertools.permutations(range(MOMENTS), 2)
            for kinds in choices
        ]
        for number, point, _ in trial.points(len(pairs), again=True):
            if number // len(pairs) != made:
                made = number // len(pairs)
                rng = Random(f"{trial.options.seed}/{made}") if made else None
                moments = stages(root / str(made), rng)
                expected = [answers_of_a_scan(place) for place in moments]
                assert len(moments) == MOMENTS
            log, caches, kinds = pairs[point]
            place = moments[log]
            lay(place, moments[caches], kinds)
            assert outcome(partial(place.answers, read_only=True)) == expected[log], pairs[point]
            assert outcome(place.answers) == expected[log], pairs[point]
            with place.queue() as queue:
                queue.enqueue("goes on")
                assert [found for found in queue.check() if found.severity == "damage"] == []
            place.restore()
            trial.count("openings", 3)


def sealed(data: bytes, version: int) -> bytes:
    """An index or a snapshot that says another version, with a checksum that fits."""
    head = data[:8] + version.to_bytes(8, "little") + data[16:56]
    digest = xxh3_64(data[64:])
    digest.update(head)
    return head + digest.intdigest().to_bytes(8, "little") + data[64:]


def test_versions_to_come(trial: Trial, tmp_path: Path) -> None:
    """Caches of a later version, their checksums right, are passed over."""
    with scratch(tmp_path) as root:
        place = stages(root)[2]
        expected = answers_of_a_scan(place)
        assert expected == place.answers(read_only=True)
        paths = [path for path in place.files() if path.suffix in (".idx", ".snap")]
        assert {path.suffix for path in paths} == {".idx", ".snap"}
        versions = (0, 2, 3, 2**32, 2**64 - 1)
        for _, number, _ in trial.points(len(paths) * len(versions)):
            path, version = paths[number % len(paths)], versions[number // len(paths)]
            path.write_bytes(sealed(path.read_bytes(), version))
            assert outcome(partial(place.answers, read_only=True)) == expected
            assert outcome(place.answers) == expected
            place.restore()


def test_files_of_a_later_version_are_refused_and_left(trial: Trial, tmp_path: Path) -> None:
    """A segment of a later major version: an error that names the version, and not a byte is changed."""
    with scratch(tmp_path) as root:
        place = stages(root)[0]
        segments = [path for path in place.files() if path.suffix == ".seg"]
        for _, number, _ in trial.points(len(segments)):
            path = segments[number]
            raw = bytearray(path.read_bytes())
            raw[8:10] = (fmt.MAJOR + 1).to_bytes(2, "little")
            raw[120:128] = xxh3_64(bytes(raw[:120])).intdigest().to_bytes(8, "little")
            path.write_bytes(raw)
            before = {found.name: found.read_bytes() for found in place.files() if found.suffix != ".lock"}
            for options in ({}, {"read_only": True}):
                error = outcome(partial(place.answers, **options))
                assert "version 2" in str(error), error
            assert {f.name: f.read_bytes() for f in place.files() if f.suffix != ".lock"} == before
            place.restore()
