"""The control page: what the processes of one running machine share, in the first 4096 bytes of the lock
file.

Invariants
- It is the one thing stored through a map, and only as aligned 8-byte items: those are never seen torn.
- It is a cache of the running boot. It counts only when magic, boot, inode and their check fit; else it is
  zeroed under the lock and everything retained is synced before a value is set.
- `appended` is stored after the bytes it speaks of were written, `durable` after they were synced, and the
  check of the first four fields last of all.
- What a wrong bit could make a promise, or a lease endless, is said twice, and the smaller of the two is
  believed: a killed writer leaves the older one, and the older one is never too much. Flags are all ones, so
  that one bit more or less does not take them back.
- The map has a descriptor of its own: the one that is locked must be closable in a forked child.
"""

from typing import NamedTuple

from xxhash import xxh3_64_intdigest

from nobroker_mmap import files
from nobroker_mmap import format as fmt

MAGIC, BOOT, LINEAGE, INODE, CHECK = range(5)
APPENDED, DURABLE, POISON, WAITERS, HOLDER, ACTIVE, SNAPSHOT, SUSPENDED, GRACE, FLOOR = range(5, 15)
UNPROVEN, CAREFUL = range(15, 17)
TIP, TIP_CHECKSUM, TIP_NEXT, TIP_RESERVED, TIP_TIME, TIP_CHECK, TIP_WANTED = range(17, 24)
AGAIN = 32
"""So many fields on, a field that is said twice is said again."""
APPENDED_AGAIN, DURABLE_AGAIN, ACTIVE_AGAIN = APPENDED + AGAIN, DURABLE + AGAIN, ACTIVE + AGAIN
YES = 2**64 - 1
"""A flag that is set."""

_IDENTITY = fmt.CONTROL_IDENTITY
_TIP_FIELDS = fmt.CONTROL_TIP.pack


class Tip(NamedTuple):
    """What has to be known of the end of the log by whoever appends without having read all of it."""

    lsn: int
    checksum: int
    """Of the last record."""
    next: int
    """For the layer above: the next number to give out,"""
    reserved: int
    """the first that must not be given out yet,"""
    time: int
    """and the time of the log, µs."""


def boot_hash(boot_id: str) -> int:
    """The boot id as the 8-byte field of the page."""
    return int(xxh3_64_intdigest(boot_id.encode("utf-8", "surrogatepass")))


class ControlPage:
    """A mapped control page. `words` is the live view: index it with the constants of this module."""

    def __init__(self, path: str, *, read_only: bool) -> None:
        """Map the page of an existing lock file.

        Raises:
            OSError: it cannot be opened, or is shorter than a page and may not be changed.
        """
        fd = files.open_read(path) if read_only else files.open_write(path)
        try:
            self.inode = files.inode_of(fd)
            size = files.size_of(fd)
            self.cut_short = 0 < size < fmt.CONTROL_SIZE
            """Somebody took the end of it away: what is left must not be believed."""
            if size < fmt.CONTROL_SIZE:
                if read_only:
                    raise OSError(f"{path}: shorter than a control page")
                files.preallocate(fd, fmt.CONTROL_SIZE)
            mapper = files.map_read if read_only else files.map_shared
            # Never closed by hand: the map lives as long as its last view, so a thread that still looks at
            # the page of a handle that another one closes sees old values and not an error.
            self._map = mapper(fd, fmt.CONTROL_SIZE)
            self.words = memoryview(self._map).cast("Q")
        finally:
            files.close(fd)

    def reachable(self) -> bool:
        """Is the file still long enough for the map to be touched? Costs a system call."""
        return self._map.size() >= fmt.CONTROL_SIZE

    def sound(self) -> bool:
        """Was the page written by this library, whenever and for whichever file?"""
        words = self.words
        identity = _IDENTITY.pack(words[MAGIC], words[BOOT], words[LINEAGE], words[INODE])
        return words[MAGIC] == fmt.CONTROL_MAGIC and words[CHECK] == xxh3_64_intdigest(identity)

    def valid(self, boot: int) -> bool:
        """Does it speak of the running boot and of this very file?"""
        return self.sound() and self.words[BOOT] == boot and self.words[INODE] == self.inode

    def zero(self) -> None:
        """Make it worthless, the check first."""
        words = self.words
        words[CHECK] = words[MAGIC] = 0
        for index in range(BOOT, CAREFUL + AGAIN + 1):
            words[index] = 0

    def least(self, field: int) -> int:
        """A field that is said twice, as far as both say it."""
        return min(self.words[field], self.words[field + AGAIN])

    def say(self, field: int, value: int) -> None:
        """Set a field that is said twice."""
        self.words[field] = self.words[field + AGAIN] = value

    def promised(self) -> int:
        """LSN up to which the log was surely written, or after a failed sync, surely durable."""
        return self.least(DURABLE if self.words[POISON] else APPENDED)

    def say_tip(self, tip: Tip) -> None:
        """Say what the log ends with; the caller holds the lock."""
        words = self.words
        words[TIP], words[TIP_CHECKSUM], words[TIP_NEXT], words[TIP_RESERVED], words[TIP_TIME] = tip
        words[TIP_CHECK] = xxh3_64_intdigest(_TIP_FIELDS(*tip))

    def tip(self) -> Tip | None:
        """What the log ends with; None when that was not said of its very end. The caller holds the lock."""
        words = self.words
        if words[TIP] != words[APPENDED]:
            return None
        tip = Tip(*words[TIP : TIP_TIME + 1])
        return tip if words[TIP_CHECK] == xxh3_64_intdigest(_TIP_FIELDS(*tip)) else None

    def identify(self, boot: int, lineage: int) -> None:
        """Say which boot, lineage and file it speaks of; the other fields must be right by now."""
        words = self.words
        words[CHECK] = 0
        words[BOOT], words[LINEAGE], words[INODE], words[MAGIC] = boot, lineage, self.inode, fmt.CONTROL_MAGIC
        words[CHECK] = xxh3_64_intdigest(_IDENTITY.pack(fmt.CONTROL_MAGIC, boot, lineage, self.inode))

    @property
    def lineage(self) -> int:
        """Lineage of the newest segment."""
        return self.words[LINEAGE]

    @property
    def suspended(self) -> int:
        """For the layer above: suspended time it knows of, µs."""
        return self.words[SUSPENDED]

    @suspended.setter
    def suspended(self, value: int) -> None:
        self.words[SUSPENDED] = value

    @property
    def careful_until(self) -> int:
        """For the layer above: boot clock up to which it is careful after a crash of the machine, µs."""
        return self.least(CAREFUL)

    @careful_until.setter
    def careful_until(self, value: int) -> None:
        self.say(CAREFUL, value)

    @property
    def grace_until(self) -> int:
        """For the layer above: queue time up to which leases are spared after a suspend, µs."""
        return self.least(GRACE)

    @grace_until.setter
    def grace_until(self, value: int) -> None:
        self.say(GRACE, value)
