"""Dumping a queue's log as JSON and bringing jobs in: what reads the queue from outside."""
