"""From what a caller has in hand (a job, an id) to the job in the log."""

from __future__ import annotations

from nobroker.errors import JobNotFoundError
from nobroker.job import Job
from nobroker.state import codes
from nobroker.state.machine import Head
from nobroker.stores.base import JobRef
from nobroker.stores.decoded import Decoded
from nobroker.stores.session import Session


class Lookup:
    """Finds jobs. For use inside a transaction, or under the log's mutex after catching up."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def seq_of(self, job_id: str) -> int | None:
        """The sequence number of a known job."""
        session = self._session
        state, reader = session.state, session.reader
        own = state.find_own(job_id)
        if not own and not job_id.startswith(reader.prefix):
            return None
        for seq in own:
            if state.pages.code(seq) != codes.NONE:
                found = reader.find(seq)
                if found is not None and reader.job_id(seq, *found) == job_id:
                    return seq
        seq_made = reader.default_seq(job_id)
        if (
            seq_made is not None
            and state.pages.code(seq_made) != codes.NONE
            and not state.pages.has_own_id(seq_made)
        ):
            return seq_made
        return None

    def known(self, job_id: str) -> int:
        """As `seq_of`.

        Raises:
            JobNotFoundError: there is none.
        """
        seq = self.seq_of(job_id)
        if seq is None:
            raise self.missing(job_id)
        return seq

    def resolve(self, job: JobRef) -> tuple[int | None, int | None]:
        """Sequence number and token of a reference; `(None, None)` when no such job is known."""
        if type(job) is str:
            return self.seq_of(job), None
        if not isinstance(job, Job):
            return self.seq_of(str(job)), None
        # A job that was never leased has no token, so its holder is nobody.
        token = job.lease_token or 0
        state, seq = self._session.state, job.seq
        if state.pages.has_own_id(seq):
            if seq not in state.find_own(job.id):
                return self.seq_of(job.id), token
        elif job.id != f"{self._session.reader.prefix}{seq}":
            return self.seq_of(job.id), token
        return (seq if state.pages.code(seq) else None), token

    def job(self, seq: int, now: int) -> Job:
        """The job as it is."""
        return self._session.reader.job(self._session.state, seq, now, *self._record(seq))

    def job_id(self, seq: int) -> str:
        """The id of a known job."""
        return self._session.reader.job_id(seq, *self._record(seq))

    def head(self, seq: int) -> Head:
        """What a known job shares with the others of its record."""
        return self._record(seq)[0].head

    def _record(self, seq: int) -> tuple[Decoded, int]:
        found = self._session.reader.find(seq)
        if found is None:
            raise self._session.lost(seq)
        return found

    def missing(self, job_id: str) -> JobNotFoundError:
        return JobNotFoundError(
            f"no job {job_id!r} in {self._session.log.path}: "
            "never enqueued here, purged, dropped, or finished and forgotten"
        )
