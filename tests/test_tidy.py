"""The house keeps its rules, and each rule is shown to catch what it is there to catch."""

from __future__ import annotations

import textwrap

import pytest

from tests.tidy import RULES, text
from tests.tidy.sources import Source, read_tree


@pytest.fixture(scope="module")
def tree() -> list[Source]:
    return read_tree()


@pytest.mark.parametrize("rule", RULES)
def test_house_rule(rule: str, tree: list[Source]) -> None:
    findings = list(RULES[rule](tree))
    assert not findings, f"{rule}:\n" + "\n".join(findings)


def test_the_rules_see_the_whole_project(tree: list[Source]) -> None:
    paths = {source.path for source in tree}
    expected = {
        "nobroker/_version.py",
        "make.py",
        "pyproject.toml",
        ".ci/run",
        "tests/test_tidy.py",
        "docs/format.md",
    }
    assert expected <= paths
    assert {"nobroker", "nobroker_mmap", "nobroker_tools"} <= {
        s.module.partition(".")[0] for s in tree if s.is_product
    }


# What each rule must catch: where the snippet stands, the snippet, and the line of the offence.
BAD: dict[str, list[tuple[str, str, int]]] = {
    "imports run downwards": [
        ("nobroker_mmap/log.py", "import nobroker.job", 1),
        ("nobroker_mmap/log.py", "from nobroker import Queue", 1),
        ("nobroker/state/ready.py", "x = 1\nfrom nobroker.stores import base", 2),
        ("nobroker/state/ready.py", "from ..queue import Queue", 1),
        ("nobroker/state/ready.py", "from nobroker_mmap.files import sync", 1),
        ("nobroker/state/ready.py", "from nobroker_mmap import format", 1),
        ("nobroker/stores/log.py", "def f():\n    from nobroker.queue import Queue", 2),
        ("nobroker/queue.py", "from nobroker.worker import Worker", 1),
        ("nobroker/worker.py", "from nobroker.stores.log import LogStore", 1),
        ("nobroker/worker.py", "from nobroker.cli import main", 1),
        ("nobroker/worker.py", "from nobroker_tools.dump import dump", 1),
        ("nobroker/app/hooks.py", "import nobroker.state.leases", 1),
        ("nobroker/app/hooks.py", "from nobroker.running import registry", 1),
        ("nobroker/running/registry.py", "from nobroker.state import ready", 1),
        ("nobroker/running/registry.py", "from nobroker_mmap.log import Log", 1),
        ("nobroker/queue.py", "def f():\n    from nobroker.running import registry", 2),
        ("nobroker/app/hooks.py", "from nobroker.running.sources import load", 1),
        ("nobroker/running/sources.py", "from nobroker.stores import base", 1),
        ("nobroker/running/sources.py", "from nobroker.cli import main", 1),
        ("nobroker/errors.py", "from .job import Job\nfrom .queue import Queue", 2),
        ("tools/dump.py", "from nobroker.cli.main import main", 1),
    ],
    "the job layer uses public names": [
        ("nobroker/app/hooks.py", "from nobroker.queue import Face", 1),
        ("nobroker/app/hooks.py", "from nobroker.arguments import whole", 1),
        ("nobroker/app/hooks.py", "import nobroker.queue", 1),
    ],
    "no hidden imports": [
        ("nobroker/worker.py", "import importlib\nimportlib.import_module('x')", 2),
        ("nobroker/worker.py", "__import__('x')", 1),
    ],
    "imports make no circle": [
        ("nobroker_mmap/record.py", "from nobroker_mmap import segment", 1),
    ],
    "only declared dependencies": [
        ("nobroker/queue.py", "import requests", 1),
        ("nobroker/queue.py", "from rich.table import Table", 1),
        ("nobroker_mmap/log.py", "import click", 1),
        ("nobroker/queue.py", "import pytest", 1),
        ("nobroker/pytest_plugin.py", "import msgpack", 1),
        ("nobroker/app/scheduler.py", "import cronsim", 1),
        ("nobroker/app/schedules.py", "import yaml", 1),
        ("nobroker/running/registry.py", "import setproctitle", 1),
        ("nobroker/running/sources.py", "import yaml", 1),
    ],
    "the state machine does no I/O": [
        ("nobroker/state/leases.py", "import os", 1),
        ("nobroker/state/leases.py", "from pathlib import Path", 1),
        ("nobroker/state/leases.py", "import mmap", 1),
        ("nobroker/state/leases.py", "import time", 1),
        ("nobroker/state/leases.py", "import random", 1),
        ("nobroker/state/leases.py", "from nobroker.clock import now", 1),
        ("nobroker/state/leases.py", "f = open('x')", 1),
        ("nobroker/state/leases.py", "import sys\nout = sys.stderr", 2),
    ],
    "only files.py opens, syncs, renames, unlinks": [
        ("nobroker_mmap/segment.py", "import os\nos.fsync(3)", 2),
        ("nobroker_mmap/segment.py", "import os as o\nf = o.pwrite", 2),
        ("nobroker/stores/log.py", "from os import replace as r\nr(a, b)", 2),
        ("nobroker/queue.py", "with open('x') as f:\n    pass", 1),
        ("nobroker/queue.py", "import shutil\nshutil.rmtree('x')", 2),
    ],
    "only files.py changes files by path": [
        ("nobroker/queue.py", "def f(path):\n    path.write_text('x')", 2),
        ("nobroker/queue.py", "from pathlib import Path\nPath('x').unlink()", 2),
    ],
    "only locking.py locks": [
        ("nobroker_mmap/files.py", "import portalocker", 1),
        ("nobroker/queue.py", "import fcntl", 1),
        ("nobroker_mmap/files.py", "import fcntl\nfcntl.flock(1, 2)", 2),
    ],
    "only format.py has structs": [
        ("nobroker_mmap/record.py", "import struct\nH = struct.Struct('<Q')", 2),
        ("tools/dump.py", "from struct import unpack\nunpack('<Q', b'')", 2),
    ],
    "only format.py has magics": [
        ("nobroker_mmap/record.py", "RECORD_MAGIC = b'nbrk'", 1),
        ("nobroker/stores/log.py", "magic: int = 0x6B72626E", 1),
    ],
    "only clock.py reads the wall clock": [
        ("nobroker/queue.py", "import time\nnow = time.time()", 2),
        ("nobroker/queue.py", "def f():\n    import time\n    return time.time_ns", 3),
        ("nobroker_mmap/log.py", "from time import clock_gettime as c\nc(7)", 2),
        ("tools/dump.py", "from datetime import datetime\ndatetime.now()", 2),
        ("nobroker/cli/show.py", "import datetime as d\nd.datetime.utcnow()", 2),
    ],
    "stopwatches only where one waits": [
        ("nobroker/stores/log.py", "import time\ntime.monotonic()", 2),
    ],
    "nothing unpickles": [
        ("nobroker/job.py", "import pickle", 1),
        ("tools/dump.py", "from marshal import loads", 1),
    ],
    "nothing runs data": [
        ("nobroker/cli/work.py", "x = 1\neval('x')", 2),
        ("nobroker_mmap/log.py", "exec('x')", 1),
    ],
    "no stray words": [
        ("nobroker/job.py", "x = 1  # TODO: more", 1),
        ("docs/guide.md", "fine\n\nas found in an earlier session", 3),
        ("nobroker/job.py", "raise NotImplementedError", 1),
        ("README.md", "https://pypi.org/project/nobroker", 1),
        ("README.md", "cd /home/someone/nobroker", 1),
    ],
}

GOOD = [
    (
        "nobroker/stores/log.py",
        "from nobroker.state import ready\nfrom nobroker_mmap.log import Log\nimport msgpack",
    ),
    (
        "nobroker/queue.py",
        "from nobroker import errors\nfrom nobroker.stores.base import Store\nfrom .clock import now",
    ),
    ("nobroker/worker.py", "import time\nfrom nobroker.queue import Queue\ntime.monotonic()"),
    (
        "nobroker/state/ready.py",
        "from sortedcontainers import SortedDict\nfrom nobroker.job import Job\nimport heapq",
    ),
    (
        "nobroker/cli/main.py",
        "import click\nimport importlib\nfrom nobroker_tools.dump import dump\nopen('x')",
    ),
    ("nobroker/app/serving.py", "def f():\n    from nobroker.running.registry import Registration"),
    ("nobroker/running/titles.py", "def f():\n    import setproctitle"),
    (
        "nobroker/running/registry.py",
        "from nobroker_mmap import files\nfrom nobroker.app.serving import Service",
    ),
    ("nobroker/app/application.py", "def run():\n    from nobroker.running.starting import run"),
    ("nobroker/clock.py", "import time\nnow = time.time"),
    ("nobroker/pytest_plugin.py", "import importlib\nimport pytest\nimportlib.import_module('x')"),
    (
        "nobroker_mmap/files.py",
        "import fcntl, os\nos.fsync(1)\nfcntl.fcntl(1, fcntl.F_FULLFSYNC)\ndef open(path): ...",
    ),
    ("nobroker_mmap/segment.py", "from nobroker_mmap import files\nfiles.unlink('x')\nMAGIC = 0"),
    ("nobroker_mmap/locking.py", "import portalocker\nimport time\ntime.monotonic()"),
    (
        "tools/dump.py",
        "import struct\nimport sys\nfrom nobroker import Queue\ntry: ...\nexcept struct.error: ...",
    ),
    ("tests/unit/test_x.py", "import time, pickle, os\ntime.time()\nos.fsync(1)"),
    ("docs/guide.md", "Run it from /srv/app. setsid starts a `start_new_session`."),
]

# Modules that the snippets refer to, so that names resolve as they do in the tree.
WORLD = [
    Source(path, "")
    for path in (
        "nobroker/__init__.py", "nobroker/job.py", "nobroker/errors.py", "nobroker/clock.py",
        "nobroker/queue.py", "nobroker/worker.py", "nobroker/state/__init__.py", "nobroker/state/ready.py",
        "nobroker/state/leases.py", "nobroker/stores/base.py", "nobroker/stores/log.py",
        "nobroker/app/serving.py", "nobroker/running/__init__.py", "nobroker/running/registry.py",
        "nobroker/cli/__init__.py", "nobroker/cli/main.py",
        "nobroker_mmap/__init__.py", "nobroker_mmap/format.py",
        "nobroker_mmap/files.py", "nobroker_mmap/log.py", "tools/__init__.py", "tools/dump.py",
    )
] + [Source("nobroker_mmap/segment.py", "from nobroker_mmap.record import decode")]  # fmt: skip


def world_with(snippet: Source) -> list[Source]:
    return [snippet, *(s for s in WORLD if s.path != snippet.path)]


@pytest.mark.parametrize(
    ("rule", "path", "snippet", "line"), [(rule, *bad) for rule in BAD for bad in BAD[rule]]
)
def test_a_bad_snippet_is_caught(rule: str, path: str, snippet: str, line: int) -> None:
    findings = list(RULES[rule](world_with(Source(path, snippet))))
    assert len(findings) == 1, findings
    assert findings[0].startswith(f"{path}:{line}: ")
    assert "; instead: " in findings[0]


@pytest.mark.parametrize(("path", "snippet"), GOOD)
def test_a_good_snippet_passes_every_rule(path: str, snippet: str) -> None:
    findings = [f for rule in RULES.values() for f in rule(world_with(Source(path, snippet)))]
    assert findings == []


def test_a_type_only_import_makes_no_circle_but_still_runs_downwards() -> None:
    block = "if TYPE_CHECKING:\n    from nobroker_mmap import segment\n    import nobroker"
    snippet = f"from typing import TYPE_CHECKING\n{block}"
    world = world_with(Source("nobroker_mmap/record.py", snippet))
    assert list(RULES["imports make no circle"](world)) == []
    assert len(list(RULES["imports run downwards"](world))) == 1


def lines(count: int) -> str:
    return "x = 1\n" * count


def test_a_long_file_is_caught() -> None:
    limit = text.MAX_FILE_LINES
    assert list(RULES["files are short"]([Source("nobroker/job.py", lines(limit))])) == []
    (finding,) = RULES["files are short"]([Source("tests/unit/test_x.py", lines(limit + 1))])
    assert finding.startswith(f"tests/unit/test_x.py: {limit + 1} lines")


def test_a_long_function_is_caught_and_its_docstring_is_not_counted() -> None:
    limit = text.MAX_FUNCTION_LINES
    docstring = '"""One.\n\nTwo.\n"""\n'
    fits = "class A:\n  def f(self):\n" + textwrap.indent(docstring + lines(limit - 1), "    ")
    assert list(RULES["functions are short"]([Source("nobroker/job.py", fits)])) == []
    (finding,) = RULES["functions are short"]([Source("nobroker/job.py", fits + "    x = 1\n")])
    assert finding.startswith(f"nobroker/job.py:A.f: {limit + 1} lines")


@pytest.mark.parametrize(
    ("length", "ceiling", "complaint"),
    [
        (12, 12, None),
        (13, 12, "at most 12"),
        (11, 12, "lower its number"),
        (10, 12, "no longer needs"),
        (0, 12, "no longer"),
    ],
)
def test_exceptions_may_only_shrink(length: int, ceiling: int, complaint: str | None) -> None:
    findings = list(
        text.over_the_limit({"a.py": length} if length else {}, 10, {"a.py": ceiling}, "split it")
    )
    assert [complaint in f for f in findings if complaint] == ([True] if complaint else [])
    assert bool(findings) == bool(complaint)


def test_every_rule_is_shown_to_catch_something() -> None:
    assert set(BAD) | {"files are short", "functions are short"} == set(RULES)
