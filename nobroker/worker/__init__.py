"""The worker: lease, run, ack; raise means nack.

face.py       Worker: its arguments, and a run as its caller sees it
conductor.py  the thread in run(): starts the others, what a stop or a second signal does
slot.py       one thread per handler at a time: lease, call, record, again
recording.py  outcomes -> the queue, with patience for a lock or a disk that is busy
heartbeat.py  extends the lease of everything in hand
durability.py waits for the disk, so that no handler has to
verdicts.py   what a handler raises to say itself what becomes of its job
calling.py    the only place that calls user code; its errors as data (outcome.py)
event_loop.py where async handlers run
run.py        what these threads share, and the lock that guards it
signals.py    catching them and putting the old handlers back
facts.py      words every log line
"""

from nobroker.worker.face import Worker
from nobroker.worker.run import WorkerStats
from nobroker.worker.verdicts import Dead, Failed, RetryLater, Verdict

__all__ = ["Dead", "Failed", "RetryLater", "Verdict", "Worker", "WorkerStats"]
