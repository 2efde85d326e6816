"""Put a few jobs into the queue in ./jobs."""

from nobroker import Queue

with Queue("./jobs") as queue:
    job = queue.enqueue({"greet": "Ada"})
    print("on the disk:", job.id)
    queue.enqueue_many([{"greet": name} for name in ("Grace", "Barbara", "Edsger")])
    queue.enqueue({"greet": ""}, max_attempts=2)  # work.py cannot do this one
    print(queue.stats())
