"""Faults done to real queues, and what must hold nevertheless. See README.md in this folder."""
