"""The manifest: which segments count, as JSON for people and scripts.

Invariant: nobody in the project reads it. It is derived from the headers after each change of the set of
segments, so a lost, stale or foreign one changes nothing.
"""

from collections.abc import Iterable

from nobroker_mmap import files
from nobroker_mmap.format import Names
from nobroker_mmap.logs import logger
from nobroker_mmap.segment import Segment


def write(names: Names, tag: str, floor: int, segments: Iterable[Segment]) -> None:
    """Replace the manifest. A failure is logged and otherwise without consequence."""
    listed = [
        {
            "number": segment.number,
            "file": f"{names.name}.{segment.number:06d}.seg",
            "base": segment.base,
            "size": segment.size,
            "end": segment.end or None,
            "lineage": f"{segment.header.lineage:016x}",
        }
        for segment in segments
    ]
    import json  # here: few handles write one

    text = json.dumps({"log": names.name, "version": 1, "floor": floor, "segments": listed}, indent=1) + "\n"
    try:
        files.write_cache(names.manifest, names.temporary(names.manifest, tag), [text.encode()])
    except OSError as error:
        logger().warning(
            "%s: the manifest was not written (%s); it is only for people", names.manifest, error
        )
