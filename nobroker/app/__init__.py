"""Jobs as functions and classes, on the public verbs of `Queue`.

application.py  App: what people import; puts the parts together
definition.py   one registered job; what `@app.job` gives
base.py         jobs as classes; steps.py: long ones, that go on where they were interrupted
queue_lists.py  lists of queues with patterns; the one queue that an environment pins all to
yaml_text.py    YAML with lines, within bounds
options.py      what may be said of a job, where it is defined and where it is enqueued
limiting.py     what it says of its limits, for each call; queue_limits.py: limits of whole queues
alone.py        runs that are alone in their process
signatures.py   arguments are checked where they are given
envelope.py     a call as a payload: the only place that knows the layout
serializers.py  arguments to what the queue stores, and back; people.py: for types that people bring
enqueueing.py   prepared calls onto the queue
batches.py      jobs that belong together; collecting.py: what is enqueued in a block of a batch
tallies.py      counting members, and ending batches
chains.py       jobs that wait for others
watching.py     the usher, which sees to it that batches end and held jobs go on
recurring.py    recurring tasks; tasks.py: what is said of one; recurring_file.py: in a file
schedules.py    when they run; scheduler.py: who enqueues them then
ticks.py        what is written down of them: the only place that knows the layout
records.py      what the layer writes down for all that: the only place that knows the layout
handle.py       what one keeps of an enqueued job
runner.py       one run: from the lease to the result, or what it raised
judging.py      what becomes of a job that raised; rules.py: what people say of that
context.py      the job that is running, as its code sees it; inheritance.py: also in its threads
hooks.py        people's own code around it all
timeouts.py     stopping jobs that run too long, and giving up those that do not stop
serving.py      working jobs off in this process; inline.py: running one where it is called
insight.py      looking at the processes that work
testing.py      tests of code that enqueues; stage.py: where their jobs run
events.py       what people's code is told of workers and failures
discovery.py    importing the modules that jobs are in
"""

from nobroker.app.application import App
from nobroker.app.base import BaseJob
from nobroker.app.batches import Batch, BatchCounts
from nobroker.app.chains import after, chain
from nobroker.app.context import JobContext, current_job
from nobroker.app.definition import Configured, JobFunction, PreparedJob
from nobroker.app.errors import (
    AbortEnqueue,
    BatchFinishedError,
    ConfigError,
    DiscoveryError,
    DuplicateJobError,
    JobCancelledError,
    JobFailedError,
    JobInterrupted,
    JobTimeoutError,
    LimitError,
    MissingExtraError,
    NestedRunError,
    RecurringError,
    ResultTimeoutError,
    RunFailedError,
    ScheduleError,
    StepError,
    UnknownJobError,
    UnknownSerializerError,
    WorkerDiedError,
)
from nobroker.app.handle import JobHandle, Progress
from nobroker.app.recurring import RecurringTask
from nobroker.app.rules import Discard, Rescue, Retry
from nobroker.app.steps import Step

__all__ = [
    "AbortEnqueue",
    "App",
    "BaseJob",
    "Batch",
    "BatchCounts",
    "BatchFinishedError",
    "ConfigError",
    "Configured",
    "Discard",
    "DiscoveryError",
    "DuplicateJobError",
    "JobCancelledError",
    "JobContext",
    "JobFailedError",
    "JobFunction",
    "JobHandle",
    "JobInterrupted",
    "JobTimeoutError",
    "LimitError",
    "MissingExtraError",
    "NestedRunError",
    "PreparedJob",
    "Progress",
    "RecurringError",
    "RecurringTask",
    "Rescue",
    "ResultTimeoutError",
    "RunFailedError",
    "Retry",
    "ScheduleError",
    "Step",
    "StepError",
    "UnknownJobError",
    "UnknownSerializerError",
    "WorkerDiedError",
    "after",
    "chain",
    "current_job",
]
