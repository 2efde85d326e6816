"""`python -m nobroker` does what the `nobroker` command does."""

import sys

from nobroker.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
