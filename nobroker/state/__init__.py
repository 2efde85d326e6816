"""The queue's state machine: records in, state out. Pure: no files, no clocks, no random numbers."""
