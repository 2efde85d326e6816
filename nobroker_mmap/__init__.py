"""A durable, segmented log of records in plain files, shared by the processes of one machine. Knows no
jobs.

`log.Log` is the face; `catalog`, `check`, `backup` and `salvage` stand beside it. Nothing is imported here,
so that a program loads only what it uses.
"""
