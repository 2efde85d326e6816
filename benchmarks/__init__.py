"""Measuring the queue: beside others, beside the limits of the machine, and against its own bars."""
