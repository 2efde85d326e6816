"""C23: a sparse, full or shrunken file never ends in a signal."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from nobroker import NobrokerError, Queue

from .words import drain, segs, start, sub

pytestmark = pytest.mark.processes

FILL = """
import sys
from nobroker import NobrokerError, Queue
q = Queue(sys.argv[1], segment_size=65536)
done, full = 0, 0
while full < 3:
    try:
        q.enqueue(b"x" * 3000); done += 1
    except (NobrokerError, OSError) as error:
        full += 1
held = []
try:
    held = q.lease(3)
    q.ack_many(held)
except (NobrokerError, OSError):
    pass
print(done)
"""

LOOP = """
import json, sys
from nobroker import NobrokerError, Queue
q = Queue(sys.argv[1], fsync=False, segment_size=65536)
q.enqueue_many([b"x" * 500] * 50)
print("ready", flush=True)
sys.stdin.readline()
wrong = []
for verb in (lambda: q.enqueue(1), lambda: q.lease(5), q.list_jobs, q.stats, q.compact, q.check):
    try:
        verb()
    except (NobrokerError, OSError) as error:
        wrong.append(type(error).__name__)
print(json.dumps(wrong), flush=True)
"""


def test_space_is_reserved_before_it_is_used(tmp_path: Path) -> None:
    with Queue(tmp_path, fsync=False, segment_size=65536) as queue:
        for _ in range(8):
            for path in segs(tmp_path):
                found = path.stat()
                assert found.st_blocks * 512 >= found.st_size, path
            queue.enqueue_many([b"x" * 1000] * 60)


@pytest.mark.skipif(
    not sys.platform.startswith("linux") or shutil.which("unshare") is None, reason="needs unshare"
)
def test_a_full_disk(tmp_path: Path) -> None:
    (tmp_path / "q").mkdir()
    mount = f"mount -t tmpfs -o size=1m none {tmp_path}/q"
    if subprocess.run(["unshare", "-rm", "sh", "-c", mount], capture_output=True, check=False).returncode:
        pytest.skip("mounting is not allowed here")
    (tmp_path / "fill.py").write_text(FILL)
    fill = f"{sys.executable} {tmp_path}/fill.py {tmp_path}/q"
    run = f"{mount} && {fill}; code=$?; cp -r {tmp_path}/q {tmp_path}/copy; exit $code"
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", run], capture_output=True, text=True, timeout=60, check=False,
        env={**os.environ, "PYTHONPATH": os.environ["PYTHONPATH"]},
    )  # fmt: skip
    assert done.returncode == 0, done
    with Queue(tmp_path / "copy") as queue:
        assert queue.stats().total >= int(done.stdout)


@pytest.mark.parametrize("share", [0.5, 0.0, 0.01])
def test_a_segment_shrunk_under_a_process_at_work(tmp_path: Path, share: float) -> None:
    directory = tmp_path / "q"
    process = start(LOOP, directory)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    for path in segs(directory):
        os.truncate(path, int(path.stat().st_size * share))
    out, err = process.communicate("\n", timeout=60)
    assert process.returncode == 0, (process.returncode, err)
    assert json.loads(out.splitlines()[-1]), "nobody noticed"
    again = sub(
        "import sys; from nobroker import *\ntry: Queue(sys.argv[1])\nexcept NobrokerError: pass", directory
    )
    assert again.code == 0, again


def test_a_segment_that_was_cut_is_an_error_and_not_a_loss(tmp_path: Path) -> None:
    with Queue(tmp_path, fsync=False, segment_size=65536) as queue:
        queue.enqueue_many([b"x" * 500] * 50)
        queue.enqueue("tail")
    first = segs(tmp_path)[0]
    data = first.read_bytes()
    os.truncate(first, 20_000)
    with pytest.raises(NobrokerError):
        Queue(tmp_path).lease(1)
    first.write_bytes(data)
    with Queue(tmp_path) as queue:
        assert drain(queue)[-1] == "tail"
