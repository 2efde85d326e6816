"""What an opening tells about itself."""

from __future__ import annotations

from collections.abc import Iterable

from nobroker_mmap.plain import Plain


class RecoveryReport(Plain):
    """What an opening found and did. `bytes_discarded` were promised to nobody; `torn_file` has them."""

    __match_args__ = (
        "records_applied",
        "bytes_scanned",
        "bytes_discarded",
        "damage",
        "orphan_records",
        "torn_file",
        "notes",
    )

    def __init__(
        self,
        records_applied: int = 0,
        bytes_scanned: int = 0,
        bytes_discarded: int = 0,
        damage: str = "none",
        orphan_records: int = 0,
        torn_file: str | None = None,
        notes: Iterable[str] = (),
    ) -> None:
        self.records_applied = records_applied
        self.bytes_scanned = bytes_scanned
        self.bytes_discarded = bytes_discarded
        self.damage = damage
        self.orphan_records = orphan_records
        self.torn_file = torn_file
        self.notes = list(notes)

    @property
    def repaired(self) -> bool:
        """Did the opening change what it found?"""
        return self.bytes_discarded > 0 or self.torn_file is not None

    def describe(self) -> str:
        """One line for people."""
        if not self.repaired and self.damage == "none":
            return f"nothing to repair; {self.bytes_scanned:,} bytes looked at"
        parts = [f"{self.bytes_discarded:,} bytes of an unfinished write cut"] if self.repaired else []
        if self.torn_file is not None:
            parts.append(f"kept as {self.torn_file}")
        if self.damage != "none":
            parts.append(f"damage: {self.damage}")
        return "; ".join(parts)
