"""An application to try batches and chains with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nobroker import App, Dead, Discard, current_job
from nobroker.clock import ManualClock

WATCH = "nobroker.watch"


class Trial:
    """An application with a job that does as its argument says, one that tells of its batch, and their log.

    Attributes:
        fail: arguments that make the job dead.
    """

    def __init__(self, directory: Path, clock: ManualClock | None = None, **options: Any) -> None:
        self.clock = clock or ManualClock()
        self.app = App(directory, fsync=False, clock=self.clock, **options)
        self.log: list[Any] = []
        self.fail = {"bad"}

        @self.app.job(name="work", discard=[Discard(KeyError)])
        def work(name: str) -> str:
            self.log.append(name)
            if name in self.fail:
                raise Dead("it is bad")
            if name == "discarded":
                raise KeyError(name)
            if name == "adds":
                batch = current_job().batch
                assert batch is not None
                with batch.add():
                    work.perform_later("added")
            return name

        @self.app.job(name="tell")
        def tell(what: str) -> None:
            batch = current_job().batch
            assert batch is not None
            self.log.append((what, batch.status, *batch.counts()))

        self.work, self.tell = work, tell

    def callbacks(self) -> dict[str, Any]:
        return {f"on_{name}": self.tell.build(name) for name in ("success", "failure", "finish")}

    def run(self, **options: Any) -> list[Any]:
        """Work off what is due; what was logged meanwhile."""
        before = len(self.log)
        self.app.run(once=True, **options)
        return self.log[before:]

    def standing(self) -> int:
        """Records that are still to be looked at."""
        stats = self.app.queue.stats(lane=WATCH)
        return stats.ready + stats.delayed

    def end(self) -> None:
        """No record is left standing, and the store is sound."""
        assert self.standing() == 0
        assert self.app.queue.check() == []
        self.app.close()
