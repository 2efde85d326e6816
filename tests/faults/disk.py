"""A model of a disk under a directory: what was asked of it, and everything it may hold after a power cut.

What was synced is there. Of what was written since, each 4 KiB page may be there in any of its versions, or
as a mixture of 512-byte sectors of them; each size and each creation, rename and removal of a name may have
happened or not, whatever the others did. A failed sync makes nothing durable, and what it should have
written stays uncertain until its page is written again and synced.
"""

from __future__ import annotations

import os
import random
from bisect import bisect_right
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from tests.faults.tap import Calls

PAGE, SECTOR = 4096, 512
ZERO = bytes(PAGE)
Pages = dict[int, bytes]


class FileState(NamedTuple):
    """A file at one moment: what is durable, and what may be there besides."""

    durable: Pages
    size: int
    pending: dict[int, tuple[bytes, ...]]
    sizes: tuple[int, ...]
    lost: frozenset[int]
    """Pages that a failed sync dropped: no sync writes them until they are written again."""

    def current(self, page: int) -> bytes:
        versions = self.pending.get(page)
        return versions[-1] if versions else self.durable.get(page, ZERO)

    def written(self, offset: int, data: bytes) -> FileState:
        pending = dict(self.pending)
        touched = set()
        end = offset + len(data)
        for page in range(offset // PAGE, -(-end // PAGE)):
            start = page * PAGE
            low, high = max(offset, start), min(end, start + PAGE)
            old = self.current(page)
            new = old[: low - start] + data[low - offset : high - offset] + old[high - start :]
            pending[page] = (*pending.get(page, ()), new)
            touched.add(page)
        return self._replace(pending=pending, lost=self.lost - touched).sized(max(self.length, end))

    @property
    def length(self) -> int:
        return self.sizes[-1] if self.sizes else self.size

    def sized(self, size: int) -> FileState:
        return self if size == self.length else self._replace(sizes=(*self.sizes, size))

    def synced(self) -> FileState:
        durable = {**self.durable, **{p: v[-1] for p, v in self.pending.items() if p not in self.lost}}
        left = {page: versions for page, versions in self.pending.items() if page in self.lost}
        return FileState(durable, self.length, left, (), self.lost)

    def sync_failed(self) -> FileState:
        return self._replace(lost=self.lost | self.pending.keys())


class Change(NamedTuple):
    """Of the directory: `gone` loses the file, `made` gets it."""

    file: int
    gone: str | None
    made: str | None


class Names(NamedTuple):
    """The directory at one moment."""

    durable: dict[str, int]
    pending: tuple[Change, ...] = ()

    def after(self, changes: tuple[Change, ...]) -> dict[str, int]:
        names = dict(self.durable)
        for change in changes:
            if change.gone is not None and names.get(change.gone) == change.file:
                del names[change.gone]
            if change.made is not None:
                names[change.made] = change.file
        return names


class Content(NamedTuple):
    size: int
    pages: Pages


@dataclass
class Image:
    """What a disk holds: names, the files they stand for, and the files' bytes."""

    names: dict[str, int] = field(default_factory=dict)
    contents: dict[int, Content] = field(default_factory=dict)

    def key(self) -> Any:
        """Equal for equal images."""
        used = {number: self.contents[number] for number in self.names.values()}
        contents = ((n, c.size, *sorted(c.pages.items())) for n, c in sorted(used.items()))
        return (tuple(sorted(self.names.items())), tuple(contents))

    def write(self, directory: Path) -> dict[int, int]:
        """Make it real in an empty directory. Returns the number of each file by its inode there."""
        made: dict[int, str] = {}
        inodes: dict[int, int] = {}
        for name, number in self.names.items():
            path = os.path.join(directory, name)
            if number in made:
                os.link(made[number], path)
                continue
            made[number] = path
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
            content = self.contents[number]
            os.ftruncate(fd, content.size)
            for page, data in content.pages.items():
                start = page * PAGE
                if start < content.size:
                    os.pwrite(fd, data[: content.size - start], start)
            inodes[os.fstat(fd).st_ino] = number
            os.close(fd)
        return inodes


class Killed(BaseException):
    """The process that asked for this operation did not live on."""


class Recorder(Calls):
    """Notes what is asked of the disk, and does it."""

    def __init__(
        self, directory: Path, base: Image | None = None, inodes: dict[int, int] | None = None
    ) -> None:
        base = base or Image()
        self._directory = str(directory)
        self._numbers = dict(inodes or {})
        self._next = max([100, *base.contents]) + 1
        self._control = -1
        self.failing_syncs = False
        self.dies_at = 0
        """The number of the operation after which the process that asks is dead, 0 for none."""
        self.position = 0
        """How many operations there were."""
        self.kinds: list[tuple[str, int]] = []
        self.names: list[tuple[int, Names]] = [(0, Names(dict(base.names)))]
        self.files: dict[int, list[tuple[int, FileState]]] = {
            number: [(0, FileState(c.pages, c.size, {}, (), frozenset()))]
            for number, c in base.contents.items()
        }
        self.controls: list[tuple[int, bytes]] = [(0, ZERO)]
        for name, number in base.names.items():
            if name.endswith(".lock"):
                self.controls.append((0, base.contents[number].pages.get(0, ZERO)))

    # -- noting

    def number_of(self, fd: int) -> int | None:
        return self._numbers.get(os.fstat(fd).st_ino)

    def _step(self, kind: str, number: int) -> None:
        self.position += 1
        self.kinds.append((kind, number))
        self.look()
        self._live()

    def _live(self) -> None:
        if 0 < self.dies_at <= self.position:
            raise Killed

    def look(self) -> None:
        """Note what the control page says now: it may be written back at any moment."""
        if self._control >= 0:
            page = os.pread(self._control, PAGE, 0).ljust(PAGE, b"\0")
            if page != self.controls[-1][1]:
                self.controls.append((self.position, page))

    def _file(self, kind: str, fd: int, change: Any) -> None:
        number = self.number_of(fd)
        if number is not None:
            history = self.files[number]
            history.append((self.position + 1, change(history[-1][1])))
            self._step(kind, number)

    def _directory_changes(self, kind: str, *changes: Change) -> None:
        last = self.names[-1][1]
        self.names.append((self.position + 1, last._replace(pending=(*last.pending, *changes))))
        self._step(kind, changes[0].file)

    def _now(self, path: str) -> int | None:
        last = self.names[-1][1]
        return last.after(last.pending).get(os.path.basename(path))

    # -- the calls

    def open(self, path: str, flags: int, mode: int = 0o777) -> int:
        self._live()
        new = flags & os.O_CREAT and not os.path.lexists(path)
        fd = super().open(path, flags, mode)
        if new:
            number, self._next = self._next, self._next + 1
            self._numbers[os.fstat(fd).st_ino] = number
            self.files[number] = [(self.position, FileState({}, 0, {}, (), frozenset()))]
            self._directory_changes("create", Change(number, None, os.path.basename(path)))
        if path.endswith(".lock"):
            if self._control >= 0:
                os.close(self._control)
            self._control = os.open(path, os.O_RDONLY)
        return fd

    def pwrite(self, fd: int, data: Any, offset: int) -> int:
        self._live()
        done = super().pwrite(fd, data, offset)
        raw = bytes(memoryview(data)[:done])
        self._file("write", fd, lambda state: state.written(offset, raw))
        return done

    def posix_fallocate(self, fd: int, offset: int, length: int) -> None:
        self._live()
        super().ftruncate(fd, max(os.fstat(fd).st_size, offset + length))
        self._file("size", fd, lambda state: state.sized(max(state.length, offset + length)))

    def ftruncate(self, fd: int, length: int) -> None:
        self._live()
        super().ftruncate(fd, length)
        self._file("size", fd, lambda state: state.sized(length))

    def fsync(self, fd: int) -> None:
        self._live()
        if os.path.isdir(f"/proc/self/fd/{fd}"):
            last = self.names[-1][1]
            self.names.append((self.position + 1, Names(last.after(last.pending))))
            self._step("directory sync", 0)
        else:
            self.fdatasync(fd)

    def fdatasync(self, fd: int) -> None:
        self._live()
        if self.failing_syncs:
            self._file("failed sync", fd, FileState.sync_failed)
            raise OSError(5, "planted: the disk failed")
        self._file("sync", fd, FileState.synced)

    def replace(self, source: str, target: str) -> None:
        self._live()
        number = self._now(source)
        super().replace(source, target)
        if number is not None:
            self._directory_changes(
                "rename", Change(number, os.path.basename(source), os.path.basename(target))
            )

    def rename(self, source: str, target: str) -> None:
        self._live()
        self.replace(source, target)

    def link(self, source: str, target: str) -> None:
        self._live()
        number = self._now(source)
        super().link(source, target)
        if number is not None:
            self._directory_changes("link", Change(number, None, os.path.basename(target)))

    def unlink(self, path: str) -> None:
        self._live()
        number = self._now(path)
        super().unlink(path)
        if number is not None:
            self._directory_changes("unlink", Change(number, os.path.basename(path), None))

    def inode(self, fd: int) -> int:
        real = super().inode(fd)
        return self._numbers.get(real, real + (1 << 40))

    # -- power cuts

    def after_all(self, at: int) -> Image:
        """After the first `at` operations, when everything reached the disk."""
        return self._image(at, lambda: True, lambda versions: versions[-1], -1)

    def after_least(self, at: int, *, control: int = -1) -> Image:
        """After the first `at` operations, when nothing reached the disk that was not synced, but of the
        control page one of its `controls`.
        """
        return self._image(at, lambda: False, lambda versions: versions[0], control)

    def after_some(self, at: int, rng: random.Random) -> Image:
        """After the first `at` operations: anything that is allowed."""
        share = rng.choice((0.1, 0.5, 0.9))
        torn = rng.random() < 0.4

        def page(versions: tuple[bytes, ...]) -> bytes:
            first, last = rng.choice(versions), rng.choice(versions)
            if rng.random() < share:
                first = versions[-1]
            if not torn or first is last:
                return first
            if rng.random() < 0.5:  # the beginning of a write
                stop = SECTOR * rng.randrange(PAGE // SECTOR + 1)
                return last[:stop] + first[stop:]
            mixed = (rng.choice((first, last))[at : at + SECTOR] for at in range(0, PAGE, SECTOR))
            return b"".join(mixed)

        control = rng.choice((0, -1, rng.randrange(len(self.controls_at(at)))))
        return self._image(at, lambda: rng.random() < share, page, control)

    def controls_at(self, at: int) -> list[tuple[int, bytes]]:
        """What the control page had said by then, each with its moment; zeros first."""
        return self.controls[: bisect_right(self.controls, at, key=lambda entry: entry[0])]

    def _image(self, at: int, happened: Any, page: Any, control: int) -> Image:
        _, names = self.names[bisect_right(self.names, at, key=lambda entry: entry[0]) - 1]
        found = names.after(tuple(change for change in names.pending if happened()))
        image = Image(found)
        controls = self.controls_at(at)
        for name, number in found.items():
            history = self.files[number]
            _, state = history[bisect_right(history, at, key=lambda entry: entry[0]) - 1]
            size = state.size
            for wanted in state.sizes:
                size = wanted if happened() else size
            pages = state.durable
            if state.pending:
                chosen = {p: page((state.durable.get(p, ZERO), *v)) for p, v in state.pending.items()}
                pages = {**pages, **chosen}
            if name.endswith(".lock"):
                size = state.length if control else size  # nobody syncs it: it gets there by itself, or not
                pages = {0: controls[control][1]} if size else {}
            image.contents[number] = Content(size, pages)
        return image
