"""Work the queue in ./jobs off; ends when nothing has come for two seconds."""

from nobroker import Job, Queue, Worker


def greet(job: Job) -> str:
    """What it returns is kept as the job's result; when it raises, the job is tried again."""
    name = job.payload["greet"]
    if not name:
        raise ValueError("nobody to greet")
    return f"Hello, {name}!"


if __name__ == "__main__":
    with Queue("./jobs") as queue:
        print(Worker(queue, greet, idle_timeout=2).run())
