"""What can be wrong with a file that is being read in."""

from __future__ import annotations

from nobroker.errors import NobrokerError


class BadInputError(NobrokerError, ValueError):
    """A file holds something that cannot be imported.

    Attributes:
        name: the file.
        line: number of the line, from 1; None where the format has no lines.
        item: number of the record or object, from 1; None where lines are counted.
        imported: how many records had been stored before; of the batch with the bad one, nothing was.
    """

    def __init__(
        self,
        reason: str,
        *,
        name: str = "",
        line: int | None = None,
        item: int | None = None,
        imported: int | None = None,
    ) -> None:
        self.reason = reason
        self.name = name
        self.line = line
        self.item = item
        self.imported = imported
        super().__init__(reason)

    def __str__(self) -> str:
        place = self.name or "input"
        if self.line is not None:
            place += f", line {self.line}"
        if self.item is not None:
            place += f", object {self.item}"
        text = f"{place}: {self.reason}"
        if self.imported is not None:
            text += f"; {self.imported} records before it were imported, nothing of its own batch was"
        return text


__all__ = ["BadInputError"]
