"""What is done in one place only."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from tests.tidy.sources import Source, at, imports, product, references, within


@dataclass(frozen=True)
class OnlyPlace:
    names: frozenset[str]
    home: tuple[str, ...]
    instead: str
    also: frozenset[tuple[str, str]] = (
        frozenset()
    )  # (module, name): one use elsewhere, with its reason beside it

    def __call__(self, sources: list[Source]) -> Iterator[str]:
        for source in product(sources):
            if not within(source.module, self.home):
                for line, name in references(source):
                    if name in self.names and (source.module, name) not in self.also:
                        yield at(source, line, f"uses {name}", self.instead)


FILE_CALLS = frozenset(
    {f"os.{n}" for n in (
        "open", "fdopen", "fsync", "fdatasync", "sync", "rename", "renames", "replace", "unlink", "remove",
        "rmdir", "link", "symlink", "posix_fallocate", "ftruncate", "truncate", "pwrite", "pwritev", "writev",
    )}
    | {f"shutil.{n}" for n in ("copy", "copy2", "copyfile", "copyfileobj", "copytree", "move", "rmtree")}
    | {"builtins.open", "io.open", "io.FileIO"}
)  # fmt: skip
files_only = OnlyPlace(
    FILE_CALLS,
    ("nobroker_mmap.files", "nobroker_mmap.directories", "nobroker.cli", "nobroker_tools"),
    "call nobroker_mmap.files, the only place that opens, preallocates, syncs, renames and unlinks",
    # The kernel tells which boot this is through a file that is no file of ours.
    # A control group is a directory that only this call removes.
    also=frozenset({("nobroker.clock", "builtins.open"), ("nobroker.running.cgroups", "os.rmdir")}),
)
wall_clock_only = OnlyPlace(
    frozenset(f"time.{n}" for n in ("time", "time_ns", "clock_gettime", "clock_gettime_ns"))
    | frozenset(f"datetime.datetime.{n}" for n in ("now", "utcnow", "today"))
    | {"datetime.date.today"},
    ("nobroker.clock",),
    "take the time as an argument, or read nobroker.clock where a call begins",
)
stopwatch_only = OnlyPlace(
    frozenset(f"time.{n}{ns}" for n in ("monotonic", "perf_counter") for ns in ("", "_ns")),
    (
        "nobroker.clock",
        "nobroker.mailbox",
        "nobroker.worker",
        "nobroker.app",
        "nobroker.running",
        "nobroker.cli",
        "nobroker_tools",
        "nobroker.stores.leasing",
        "nobroker_mmap.locking",
    ),
    "take the time as an argument; waits belong to nobroker_mmap/locking.py, the mailbox, a lease's wait"
    " and the worker",
)
struct_only = OnlyPlace(
    frozenset(f"struct.{n}" for n in (
        "Struct", "pack", "pack_into", "unpack", "unpack_from", "iter_unpack", "calcsize",
    )),
    ("nobroker_mmap.format",),
    "define the layout in nobroker_mmap/format.py and use its struct",
)  # fmt: skip
nothing_runs_data = OnlyPlace(
    frozenset({"builtins.eval", "builtins.exec", "builtins.compile"}),
    (),
    "data is data: decode it with msgpack or json",
)


def files_by_path_only(sources: list[Source]) -> Iterator[str]:
    methods = {"write_bytes", "write_text", "touch", "unlink"}
    for source in product(sources):
        if within(source.module, files_only.home):
            continue
        for line, name in references(source):
            if name.rpartition(".")[2] in methods and name.startswith("builtins."):
                yield at(source, line, f"calls .{name.rpartition('.')[2]} on a path", files_only.instead)


def locks_only(sources: list[Source]) -> Iterator[str]:
    instead = "nobroker_mmap.locking, the only place that locks"
    full_sync = {"fcntl", "fcntl.fcntl", "fcntl.F_FULLFSYNC"}  # macOS: fsync alone does not reach the disk
    for source in product(sources):
        if within(source.module, ("nobroker_mmap.locking",)):
            continue
        keys = source.module == "nobroker.cli.keys"  # of a keyboard, which Windows has in the same module
        syncs = source.module == "nobroker_mmap.files"
        for item in imports(source):
            top = item.name.partition(".")[0]
            if top == "portalocker" or (top == "msvcrt" and not keys) or (top == "fcntl" and not syncs):
                yield at(source, item.line, f"imports {top}", instead)
        for line, name in references(source):
            if syncs and name.partition(".")[0] == "fcntl" and name not in full_sync:
                yield at(source, line, f"uses {name}", instead)


def magics_only(sources: list[Source]) -> Iterator[str]:
    for source in product(sources):
        if source.module == "nobroker_mmap.format":
            continue
        for node in ast.walk(source.tree):
            if isinstance(node, ast.Assign | ast.AnnAssign) and is_magic(node.value):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                if any("magic" in ast.unparse(t).lower() for t in targets):
                    yield at(source, node.lineno, "defines a magic", "define it in nobroker_mmap/format.py")


def is_magic(value: ast.expr | None) -> bool:
    literal = value.value if isinstance(value, ast.Constant) else None
    return isinstance(literal, bytes) or (isinstance(literal, int) and literal > 0xFFFF)


def nothing_unpickles(sources: list[Source]) -> Iterator[str]:
    for source in product(sources):
        for item in imports(source):
            if item.name.partition(".")[0] in ("pickle", "marshal", "shelve", "dill", "cloudpickle"):
                yield at(
                    source, item.line, f"imports {item.name}", "msgpack: reading a file must never run code"
                )
