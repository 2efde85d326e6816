"""What happened to each job, by its caller's knowledge: returned, refused, or nobody knows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from pathlib import Path

from nobroker import Job, JobState, NobrokerError, Queue


@dataclass
class Account:
    """Jobs are known by a key in their payload."""

    there: set[str] = field(default_factory=set)
    """Their enqueue returned."""
    absent: set[str] = field(default_factory=set)
    """Their enqueue was refused as not written."""
    unknown: set[str] = field(default_factory=set)
    done: set[str] = field(default_factory=set)
    """Their ack returned."""
    perhaps_done: set[str] = field(default_factory=set)

    def enqueued(self, keys: Iterable[str], error: NobrokerError | None) -> None:
        """What the enqueue of these jobs said."""
        if error is None:
            self.there.update(keys)
        elif getattr(error, "outcome", "not written") == "not written":
            self.absent.update(keys)
        else:
            self.unknown.update(keys)

    def acked(self, keys: Iterable[str], error: NobrokerError | None) -> None:
        """What the ack of these jobs said."""
        if error is None:
            self.done.update(keys)
        elif getattr(error, "outcome", "not written") != "not written":
            self.perhaps_done.update(keys)

    def copy(self) -> Account:
        """As it is now."""
        return Account(*(set(getattr(self, part.name)) for part in fields(self)))

    def while_becoming(self, later: Account) -> Account:
        """While the call is under way that leads from this account to a later one: it may have had its
        effect, or not.
        """
        between = self.copy()
        known = self.there | self.absent | self.unknown
        between.unknown |= (later.there | later.absent | later.unknown) - known
        between.perhaps_done |= (later.done | later.perhaps_done) - self.done
        return between

    def compare(self, queue: Queue) -> None:
        """Is the queue as those who used it know it to be?"""
        live = Counter(key_of(job) for job in queue._iter_jobs() if job.state is not JobState.DONE)
        twice = [key for key, times in live.items() if times > 1]
        lost = self.there - self.done - self.perhaps_done - live.keys()
        back = self.done & live.keys()
        refused = self.absent & live.keys()
        strange = live.keys() - self.there - self.unknown - refused
        wrong = {"twice": twice, "lost": lost, "finished, and back": back, "refused, and there": refused}
        wrong["from nowhere"] = strange
        told = {what: sorted(keys)[:5] for what, keys in wrong.items() if keys}
        if told:
            raise AssertionError(f"{told}")


def key_of(job: Job) -> str:
    """The key in a job's payload."""
    return str(job.payload["key"])


def account_of(notes: Path) -> Account:
    """What the children said before they were killed."""
    account = Account()
    begun: dict[str, set[str]] = {"+": set(), "-": set()}
    for line in notes.read_text().splitlines():
        what, *keys = line.split()
        if what.startswith("?"):
            begun[what[1]].update(keys)
        else:
            (account.there if what == "+" else account.done).update(keys)
    account.unknown = begun["+"] - account.there
    account.perhaps_done = begun["-"] - account.done
    return account
