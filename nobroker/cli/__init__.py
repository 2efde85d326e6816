"""The command line. One file per command; click and rich are imported nowhere else."""
