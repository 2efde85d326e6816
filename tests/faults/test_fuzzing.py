"""A fuzzer that is led by the branches it reaches, beside the blind one of test_hostile_files.py: what stands
behind the checksums is answered, or refused by a typed error, in bounded time and memory.

What it found to be of interest in long runs is kept in corpus.msgpack, and is where all runs begin.
"""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import msgpack
import pytest
from xxhash import xxh3_64_hexdigest

from tests.faults.trial import Trial

CORPUS = Path(__file__).with_name("corpus.msgpack")
RUNS = 10_000
LONG_RUNS = 100_000
REACHED = 450
"""Edges; more than what the refusals at the door are."""
LIMITS = ("-timeout=2", "-rss_limit_mb=512", "-max_len=4096")
"""Seconds for one input, memory for all, bytes."""
pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(
        importlib.util.find_spec("atheris") is None, reason="atheris is not installed (extra `faults`)"
    ),
]


def inputs_in(directory: Path) -> list[bytes]:
    return sorted(path.read_bytes() for path in directory.iterdir())


def lay_out(inputs: list[bytes], directory: Path) -> None:
    directory.mkdir()
    for data in inputs:
        (directory / xxh3_64_hexdigest(data)).write_bytes(data)


def fuzz(*words: object) -> str:
    """Run the fuzzer; what it said."""
    command = [sys.executable, "-m", "tests.faults.fuzz_child", *LIMITS, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stderr


def test_behind_the_checksums(trial: Trial, tmp_path: Path) -> None:
    corpus, found = tmp_path / "corpus", tmp_path / "found"
    lay_out(msgpack.unpackb(CORPUS.read_bytes()) if CORPUS.exists() else [], corpus)
    found.mkdir()
    for _, rng in trial.rounds(1):
        runs = LONG_RUNS if trial.long else RUNS
        said = fuzz(f"-runs={runs}", f"-seed={rng.randrange(1, 2**31)}", f"-artifact_prefix={found}/", corpus)
        assert list(found.iterdir()) == []
        done = re.findall(r"^Done (\d+) runs", said, re.MULTILINE)
        reached = re.findall(r"DONE +cov: (\d+) ", said)
        assert done, said[-2000:]
        assert int(reached[0]) > REACHED, "hardly anything of the product is reached"
        trial.count("runs", int(done[0]))
    if trial.long:
        CORPUS.write_bytes(msgpack.packb(inputs_in(corpus)))
