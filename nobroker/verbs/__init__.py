"""The verbs of a queue, by who uses them: checked arguments in, a call of the store out.

`face` is what they share; `producing` puts jobs in, `holding` is for who leases them, `looking` for who
asks, `managing` for who runs the queue. `nobroker.queue.Queue` is all of them.
"""
