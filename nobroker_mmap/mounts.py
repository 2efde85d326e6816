"""On what kind of file system a directory is, where the system tells (Linux).

Invariant: nothing is decided by it. It is for a warning, so that nobody finds out by losing jobs.
"""

import os
from typing import Literal, NamedTuple

from nobroker_mmap import files

TABLE = "/proc/self/mountinfo"
_MAX_TABLE = 4 << 20

NETWORK = frozenset(
    (
        "nfs", "nfs4", "cifs", "smb2", "smb3", "smbfs", "ncpfs", "afs", "9p", "ceph", "lustre", "gpfs",
        "beegfs", "glusterfs", "pvfs2", "davfs", "coda", "vboxsf", "prl_fs", "drvfs", "fakeowner", "osxfs",
        "virtiofs",
        "gfs2", "ocfs2", "fuse.sshfs", "fuse.glusterfs", "fuse.s3fs", "fuse.rclone", "fuse.gcsfuse",
        "fuse.davfs2", "fuse.grpcfuse", "fuse.vmhgfs-fuse", "fuse.juicefs", "fuse.ceph",
    )
)  # fmt: skip
LAYERED = frozenset(("overlay", "overlayfs", "aufs", "fuse.fuse-overlayfs", "unionfs"))


class Doubt(NamedTuple):
    """Why a directory may not be the place for a log."""

    kind: Literal["network", "layered"]
    file_system: str
    reason: str


def doubt_about(directory: str, table: str | None = None) -> Doubt | None:
    """What speaks against a directory; None when nothing does, or nothing can be known.

    Args:
        directory: need not exist.
        table: the system's list of mounts.
    """
    kind = file_system_of(directory, TABLE if table is None else table)
    if kind in NETWORK:
        return Doubt(
            "network",
            kind,
            "locks, mapped files and syncs of network and shared file systems do not keep what this log"
            " needs: jobs can be lost or run twice; use a local disk",
        )
    if kind in LAYERED:
        return Doubt(
            "layered",
            kind,
            "this is a layer of a container: it is gone with the container, and a file of a lower layer is"
            " copied when it is first written, while others still read the old one; use a volume",
        )
    return None


def file_system_of(directory: str, table: str) -> str:
    """The type of the file system that holds a directory; '' when it can't be known."""
    try:
        lines = files.read_stream(table, _MAX_TABLE).decode("utf-8", "surrogateescape").splitlines()
    except OSError:
        return ""
    place = os.path.realpath(directory)
    longest, kind = -1, ""
    for line in lines:
        before, found, after = line.partition(" - ")
        fields = before.split(" ")
        if not found or len(fields) < 5:
            continue
        point = _unescaped(fields[4])
        inside = place == point or place.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= longest:  # of two at one place, the later one hides the other
            longest, kind = len(point), after.split(" ")[0]
    return kind


def _unescaped(text: str) -> str:
    for escape, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(escape, character)
    return text
