"""Stores: where a queue keeps its jobs. `base` says what a store must do, `log` does it on a directory."""
