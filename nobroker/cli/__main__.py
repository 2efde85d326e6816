"""`python -m nobroker.cli`: the command line without an installed script."""

import sys

from nobroker.cli.main import main

sys.exit(main())
