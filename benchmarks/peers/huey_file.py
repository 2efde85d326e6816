"""huey with a file for each task."""

# mypy: disable-error-code="import-not-found,import-untyped,unused-ignore"
from __future__ import annotations

from pathlib import Path
from typing import Any

import huey

from benchmarks.peers import huey_sqlite


class Peer(huey_sqlite.Peer):
    def opened(self, directory: Path, options: dict[str, Any]) -> Any:
        return huey.FileHuey(path=str(directory / "huey"), results=False, **options)

    def close(self) -> None:
        """It holds nothing open."""
