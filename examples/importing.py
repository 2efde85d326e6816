"""An import in steps that is killed in the middle, and goes on where it was.

    pip install nobroker
    python examples/importing.py

The job reads people from ./people.csv into a database. Its worker is killed, as by a crash; after two
seconds, which is the visibility timeout, another worker takes the job and skips the rows that are there.
"""

from __future__ import annotations

import csv
import os
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

from nobroker import App, BaseJob, Step

app = App("./importing-data", visibility_timeout=2)

PEOPLE = Path("people.csv")
DATABASE = Path("people.db")


@app.register
class ImportPeople(BaseJob):
    """Each step runs once, whatever happens in between; inside a step, the cursor says how far it is."""

    def perform(self, path: str) -> int:
        with open(path, newline="") as file:
            self.rows = list(csv.reader(file))
        self.database = sqlite3.connect(DATABASE)
        print(f"attempt {self.attempts} in process {os.getpid()}", flush=True)
        self.step("tables", self.make_tables)
        self.step("import", self.import_rows, start=0)
        self.database.close()
        return len(self.rows)

    def make_tables(self, step: Step) -> None:
        print("  making the tables", flush=True)
        self.database.execute("CREATE TABLE IF NOT EXISTS people (id INTEGER PRIMARY KEY, name TEXT)")

    def import_rows(self, step: Step) -> None:
        if step.cursor:
            print(f"  skipping {step.cursor} rows that are there", flush=True)
        for number, name in self.rows[step.cursor :]:
            with self.database:  # a row that was written after the last checkpoint is written once more
                self.database.execute("INSERT OR REPLACE INTO people VALUES (?, ?)", (number, name))
            step.advance()
            step.checkpoint()
            self.progress(step.cursor / len(self.rows))
            time.sleep(0.003)  # stands for something slow
        print(f"  imported up to row {step.cursor}", flush=True)


def worker() -> subprocess.Popen[bytes]:
    """A process that runs the jobs of this file."""
    here = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen([sys.executable, "-m", "nobroker", "run", "importing"], env=here)


def main() -> None:
    """Enqueue the import, kill its worker after a third of it, and let another one go on."""
    with PEOPLE.open("w", newline="") as file:
        csv.writer(file).writerows([number, f"person {number}"] for number in range(1, 301))
    DATABASE.unlink(missing_ok=True)
    handle = ImportPeople.perform_later(str(PEOPLE))
    with worker() as first:
        while (progress := handle.progress()) is None or progress.fraction < 1 / 3:
            if first.poll() is not None:
                sys.exit("the worker ended too early")
            time.sleep(0.01)
        first.kill()
    print(f"killed at {progress.fraction:.0%}", flush=True)
    with worker() as second:
        try:
            print(f"{handle.result(timeout=60)} rows are in the file,", flush=True)
        finally:
            second.terminate()
    found = sqlite3.connect(DATABASE)
    print(f"{found.execute('SELECT count(*) FROM people').fetchone()[0]} in the database")
    found.close()


if __name__ == "__main__":
    main()
