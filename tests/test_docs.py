"""The documents tell the truth: their programs run, their links lead somewhere, what they name exists.

A fenced block that begins with ```` ```python run ```` is a program, and is run in a directory of its own.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import shlex
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgpack
import pytest
from xxhash import xxh3_64_intdigest

import nobroker
from nobroker.cli.main import COMMANDS, build
from nobroker.cli.settings import Settings
from nobroker.clock import ManualClock
from nobroker_tools.dump import main as dump_main

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
NAMES = [path.relative_to(ROOT).as_posix() for path in DOCUMENTS]
API = ROOT / "docs" / "api.md"

_BLOCK = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\((?P<target>[^)\s]+)\)")
_FILE = re.compile(r"<!-- file: (?P<path>\S+) -->\n```python\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(path: Path, info: str) -> Iterator[tuple[int, str]]:
    """The fenced blocks with an info string, each with the number of its first line."""
    text = path.read_text(encoding="utf-8")
    for match in _BLOCK.finditer(text):
        if match["info"].strip() == info:
            yield text.count("\n", 0, match.start("body")) + 1, match["body"]


def runnable() -> list[Any]:
    return [
        pytest.param(body, id=f"{name}:{line}")
        for name, path in zip(NAMES, DOCUMENTS, strict=True)
        for line, body in blocks(path, "python run")
    ]


def run(directory: Path, *command: str) -> str:
    done = subprocess.run(
        [sys.executable, *command], cwd=directory, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("program", runnable())
def test_program_runs(program: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(program, encoding="utf-8")
    run(tmp_path, "program.py")


def test_there_are_programs_to_run() -> None:
    for name, least in (("guide.md", 15), ("recipes.md", 8)):
        assert len(list(blocks(ROOT / "docs" / name, "python run"))) >= least


def test_quickstart_from_the_first_step_to_the_log(tmp_path: Path) -> None:
    for name in ("first.py", "work.py"):
        (tmp_path / name).write_text((ROOT / "examples" / name).read_text(encoding="utf-8"), encoding="utf-8")
    assert "ready=5" in run(tmp_path, "first.py")
    assert "succeeded=4, failed=2, dead=1" in run(tmp_path, "work.py")
    assert re.search(r"done\s+4\n", run(tmp_path, "-m", "nobroker", "stats"))
    assert "nobody to greet" in run(tmp_path, "-m", "nobroker", "dlq")
    assert run(tmp_path, "-m", "nobroker_tools.dump", "jobs", "--jobs").count('"state":"done"') == 4
    assert "requeued 1 job" in run(tmp_path, "-m", "nobroker", "dlq", "--requeue")
    worked = run(tmp_path, "-m", "nobroker", "work", "work:greet", "--max-jobs", "1")
    assert "failed 1" in worked


def test_files_shown_in_the_documents_are_the_files() -> None:
    shown = [
        (match["path"], match["body"])
        for path in DOCUMENTS
        for match in _FILE.finditer(path.read_text(encoding="utf-8"))
    ]
    files = {"examples/first.py", "examples/work.py", "examples/quickstart/jobs/__init__.py"}
    assert {path for path, _ in shown} == files
    for path, body in shown:
        assert body == (ROOT / path).read_text(encoding="utf-8"), path


@pytest.mark.parametrize("name", NAMES)
def test_relative_links_lead_somewhere(name: str) -> None:
    path = ROOT / name
    text = _BLOCK.sub("", path.read_text(encoding="utf-8"))
    broken = []
    for match in _LINK.finditer(text):
        target, _, anchor = match["target"].partition("#")
        if "://" in target or target.startswith("mailto:"):
            continue
        found = path.parent / target if target else path
        if not found.exists() or (anchor and found.suffix == ".md" and anchor not in anchors(found)):
            broken.append(match["target"])
    assert not broken


def anchors(path: Path) -> set[str]:
    """The anchors that headings have on the usual hosts of repositories."""
    text = _BLOCK.sub("", path.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ +(.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_places_in_the_code_exist() -> None:
    text = _BLOCK.sub("", (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8"))
    gone = [
        path
        for path in re.findall(r"`((?:nobroker|nobroker_mmap|tests)/[\w/.]*)`", text)
        if not (ROOT / path).exists()
    ]
    for path, *names in re.findall(r"`(\w+/[\w/]+\.py)`\s+`(\w+)(?:\.(\w+))?`", text):
        code = (ROOT / path).read_text(encoding="utf-8") if (ROOT / path).exists() else ""
        gone += [
            f"{path}: {name}"
            for name in names
            if name and not re.search(rf"^ *(def|class) {name}\b", code, re.MULTILINE)
        ]
    assert gone == []


# -- the command line ---------------------------------------------------------------------------------------


def command_lines() -> list[Any]:
    """Each call of a command in a shell block, without what it is piped to."""
    found = []
    for name, path in zip(NAMES, DOCUMENTS, strict=True):
        for first, body in blocks(path, "sh"):
            for number, line in enumerate(body.splitlines(), first):
                found += [pytest.param(words, id=f"{name}:{number}") for words in calls(line)]
    return found


def calls(line: str) -> Iterator[list[str]]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|;&<>")
    lexer.whitespace_split = True
    words: list[str] = []
    for word in [*lexer, ";"]:
        if word and set(word) <= set("|;&<>"):
            if words and words[0] in ("nobroker", "nobroker-dump"):
                yield words
            words = []
        else:
            words.append(word)


@pytest.mark.parametrize("words", command_lines())
def test_command_and_its_options_exist(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    program, *rest = words
    command: click.Command = build() if program == "nobroker" else dump_command(monkeypatch)
    context = click.Context(command, info_name=program, obj=Settings())
    _, rest, _ = command.make_parser(context).parse_args(rest)
    if isinstance(command, click.Group):
        assert rest, "no command is named"
        below = command.get_command(context, rest[0])
        assert below is not None, f"there is no command {rest[0]!r}"
        below.make_parser(click.Context(below, parent=context)).parse_args(rest[1:])


def dump_command(monkeypatch: pytest.MonkeyPatch) -> click.Command:
    """The command that `nobroker-dump` runs."""
    made: list[click.Command] = []
    monkeypatch.setattr(click.Command, "main", lambda self, **_: made.append(self))
    dump_main([])
    return made[0]


@pytest.mark.parametrize("name", NAMES)
def test_commands_named_in_the_text_exist(name: str) -> None:
    text = _BLOCK.sub("", (ROOT / name).read_text(encoding="utf-8"))
    named = re.findall(r"`nobroker (?:-q \w+ |--dir \S+ |--json )*([a-z][a-z0-9-]*)\b[^`]*`", text)
    assert set(named) <= set(COMMANDS)


def test_every_command_is_in_the_reference() -> None:
    text = API.read_text(encoding="utf-8")
    assert [name for name in COMMANDS if f"| `{name}" not in text] == []


# -- the reference ------------------------------------------------------------------------------------------


def section(title: str) -> str:
    """What the reference says under a heading, up to the next of its level or above."""
    text = API.read_text(encoding="utf-8")
    match = re.search(rf"^(#+) `?{re.escape(title)}\b.*$", text, re.MULTILINE)
    assert match is not None, f"docs/api.md has no section {title}"
    level = len(match[1])
    rest = text[match.end() :]
    following = re.search(rf"^#{{1,{level}}} ", rest, re.MULTILINE)
    return rest[: following.start()] if following else rest


def public(kind: type) -> dict[str, Any]:
    """Attributes by name, those of the classes of the project that it is made of among them."""
    makers = [base for base in reversed(kind.__mro__) if base.__module__.startswith("nobroker")]
    return {name: value for base in makers for name, value in vars(base).items() if not name.startswith("_")}


def test_every_public_name_is_in_the_reference() -> None:
    text = API.read_text(encoding="utf-8")
    assert [name for name in nobroker.__all__ if f"`{name}" not in text] == []


CLASSES = (
    nobroker.Queue,
    nobroker.Worker,
    nobroker.Job,
    nobroker.NewJob,
    nobroker.Lanes,
    nobroker.BackoffPolicy,
    nobroker.QueueStats,
    nobroker.WorkerStats,
    nobroker.CompactionResult,
    nobroker.RecoveryReport,
    ManualClock,
    nobroker.App,
    nobroker.BaseJob,
    nobroker.JobContext,
    nobroker.Retry,
    nobroker.Discard,
    nobroker.Rescue,
)
MADE_BY_US = (nobroker.JobHandle, nobroker.Step, nobroker.ProcessInfo, nobroker.JobSummary)


@pytest.mark.parametrize("kind", CLASSES + MADE_BY_US, ids=lambda kind: kind.__name__)
def test_every_attribute_and_argument_is_in_the_reference(kind: type) -> None:
    text = section(kind.__name__)
    missing = [name for name in public(kind) if f"`{name}" not in text and f".{name}" not in text]
    if dataclasses.is_dataclass(kind):
        missing += [field.name for field in dataclasses.fields(kind) if f"`{field.name}`" not in text]
    elif kind not in MADE_BY_US:
        missing += [name for name in inspect.signature(kind).parameters if f"`{name}`" not in text]
    for name, function in public(kind).items():
        if inspect.isfunction(function):
            missing += [
                f"{name}({argument})"
                for argument in list(inspect.signature(function).parameters)[1:]
                if not re.search(rf"\b{argument}\b", text)
            ]
    assert missing == []


def test_errors_in_the_reference_are_those_that_there_are() -> None:
    text = section("Errors")
    errors = [name for name in nobroker.__all__ if name.endswith("Error")]
    assert [name for name in errors if f"`{name}`" not in text] == []
    assert set(re.findall(r"^\| `(\w+Error)`", text, re.MULTILINE)) == set(errors)


# -- the format ---------------------------------------------------------------------------------------------


def read_by_the_book(directory: Path) -> Iterator[tuple[int, dict[str, Any], Any]]:
    """Type, head and tail of each record, by docs/format.md alone: none of the project's code is used."""
    before = end = 0
    for path in sorted(directory.glob("default.??????.seg")):
        raw = path.read_bytes()
        number, _, _, lineage, _, base, stop, previous = struct.unpack("<8Q", raw[16:80])
        assert raw[:8] == b"NBSEG\r\n\x1a"
        assert xxh3_64_intdigest(raw[:120]) == int.from_bytes(raw[120:128], "little")
        assert (stop, previous) == (end, before)
        at = 128
        while raw[at : at + 4] == b"NBr1":
            kind, flags, _, size, head, segment, _ = struct.unpack("<BBHIIII", raw[at + 4 : at + 24])
            place, lsn, durable, previous, checksum = struct.unpack("<5Q", raw[at + 24 : at + 64])
            body = raw[at + 64 : at + 64 + size]
            assert (segment, place, lsn, previous) == (number, lineage, base + at - 128, before)
            assert durable <= lsn
            assert flags <= 3
            assert xxh3_64_intdigest(raw[at : at + 56] + body) == checksum
            tail = msgpack.unpackb(body[head:], strict_map_key=False) if size > head else None
            yield kind, msgpack.unpackb(body[:head], strict_map_key=False), tail
            before = checksum
            at = end = at + (64 + size + 7) // 8 * 8
        assert not any(raw[at : at + 64])


def test_the_format_is_enough_to_read_a_queue(tmp_path: Path) -> None:
    backoff = nobroker.BackoffPolicy(base=0)
    with nobroker.Queue(tmp_path, segment_size=65_536, fsync=False, backoff=backoff) as queue:
        payloads = [{"n": n, "text": "x" * 500} for n in range(400)]
        for start in range(0, 400, 40):
            queue.enqueue_many(payloads[start : start + 40], priority=start)
        queue.enqueue(b"own", job_id="mine", metadata=[1], delay=5)
        leased = queue.lease(10)
        queue.ack_many(leased[:4])
        queue.ack(leased[4], result="done")
        queue.nack_many(leased[5:7], error="no")
        queue.extend(leased[7], 60, progress=1)
        queue.release(leased[8])
    records = list(read_by_the_book(tmp_path))
    assert len(list(tmp_path.glob("*.seg"))) > 1
    added = [(head, tail) for kind, head, tail in records if kind == 16]
    assert [payload for _, tail in added for payload in tail] == [*payloads, b"own"]
    assert [head.get("p", 0) for head, _ in added[:-1]] == list(range(0, 400, 40))
    own = added[-1][0]
    assert own["i"] == ["mine"]
    assert msgpack.unpackb(own["M"]) == [1]
    assert own["a"] == own["t"] + 5_000_000
    assert all(len(tail) == head["n"] for head, tail in added)
    ((lease, _),) = [(head, tail) for kind, head, tail in records if kind == 18]
    assert lease["q"] == [leased[0].seq, leased[-1].seq]
    assert lease["k"] == leased[0].lease_token
    assert [entry[:3] for entry in lease["v"]] == [[10, 360, 5]]
    assert [(head["q"], tail) for kind, head, tail in records if kind == 19] == [
        ([leased[0].seq, leased[3].seq], None),
        ([leased[4].seq] * 2, ["done"]),
    ]
    ((nack, texts),) = [(head, tail) for kind, head, tail in records if kind == 20]
    assert (nack["q"], nack["e"], texts) == ([leased[5].seq, leased[6].seq], [0, 1], ["no", "no"])
    assert [(head["g"], tail) for kind, head, tail in records if kind == 22] == [([0], [[[1], None]])]
    assert [head["q"] for kind, head, _ in records if kind == 23] == [[leased[8].seq] * 2]
    assert records[-1][0] == 1
