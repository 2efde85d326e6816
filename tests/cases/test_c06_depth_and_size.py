"""C6: what is accepted can be read again, in another process; what is not leaves no trace."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .words import sub

pytestmark = pytest.mark.processes

WRITE = """
import json, sys
from nobroker import Queue, SerializationError
q = Queue(sys.argv[1], fsync=False, segment_size=65536)
taken = []
def nest(depth, kind):
    v = [] if kind == "list" else {}
    for level in range(depth - 1):
        v = [v] if kind == "list" or (kind == "mixed" and level % 2) else {"k": v}
    return v
for kind in ("list", "dict", "mixed"):
    for depth in (100, 200, 255, 256, 499, 500, 501, *range(503, 516), 1000, 100_000):
        before = (len(q), q.stats().bytes)
        v = nest(depth, kind)
        for put in (q.enqueue, lambda v: q.enqueue_many([1, v])[1], lambda v: q.enqueue(0, metadata=v)):
            try:
                job = put(v)
                taken.append([job.id, depth, kind])
                before = (len(q), q.stats().bytes)
            except SerializationError:
                assert (len(q), q.stats().bytes) == before
        while v:
            v = v["k"] if type(v) is dict else v[0]
loop = []; loop.append(loop)
for v in (loop, {"a": loop}):
    try:
        q.enqueue(v); raise SystemExit("took a loop")
    except SerializationError:
        pass
sizes = []
for size in (8 * 2**20 - 6, 8 * 2**20 - 5, 8 * 2**20 - 4, 8 * 2**20, 70_000, 20 * 2**20):
    try:
        sizes.append([q.enqueue(b"x" * size).id, size])
    except SerializationError:
        sizes.append([None, size])
print(json.dumps([taken, sizes]))
"""

READ = """
import json, sys
from nobroker import Queue
taken, sizes = json.loads(sys.stdin.read() if len(sys.argv) < 3 else open(sys.argv[2]).read())
q = Queue(sys.argv[1], fsync=False)
for job_id, depth, kind in taken:
    job = q.get(job_id)
    v, n = job.payload or job.metadata, 0
    while type(v) in (list, dict):
        n += 1
        v = (v["k"] if type(v) is dict else v[0]) if v else None
    assert n == depth, (n, depth, kind)
for job_id, size in sizes:
    if job_id:
        assert len(q.get(job_id).payload) == size
assert not q.check(), q.check()
q.compact()
q.close()
q = Queue(sys.argv[1], fsync=False)
for job_id, *_ in taken + sizes:
    if job_id:
        q.get(job_id)
"""


def test_accepted_means_readable_elsewhere(tmp_path: Path) -> None:
    wrote = sub(WRITE, tmp_path / "q")
    assert wrote.code == 0, wrote
    taken, sizes = json.loads(wrote.out)
    assert {depth for _, depth, _ in taken} == {100, 200, 255, 256, 499, 500}
    assert len(taken) == 6 * 3 * 3
    assert [size for job_id, size in sizes if job_id] == [8 * 2**20 - 6, 8 * 2**20 - 5, 70_000]
    (tmp_path / "taken.json").write_text(wrote.out)
    read = sub(READ, tmp_path / "q", tmp_path / "taken.json")
    assert read.code == 0, read
