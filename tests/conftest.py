"""What every test gets: this checkout on the path of child processes, and repeatable examples."""

import os
import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parent.parent

# Child processes import the checkout that is being tested, from whatever directory they start in.
os.environ["PYTHONPATH"] = os.pathsep.join(p for p in (str(ROOT), os.environ.get("PYTHONPATH", "")) if p)
# The workers of pytest-xdist are measured where that was asked for, the processes that tests start are not:
# nothing counts that no test looks at.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.pop("COVERAGE_PROCESS_CONFIG", None)
# A queue directory set for daily work is no place for tests.
os.environ.pop("NOBROKER_DIR", None)

# A shell starts what runs in the background with some signals ignored, and children inherit that; tests that
# interrupt would wait for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
for name in ("SIGQUIT", "SIGHUP"):
    if hasattr(signal, name) and signal.getsignal(getattr(signal, name)) is signal.SIG_IGN:
        signal.signal(getattr(signal, name), signal.SIG_DFL)

# The same examples each time and no deadline: a busy machine is not a defect.
settings.register_profile(
    "nobroker", deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("nobroker")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("faults", "the fault harness (tests/faults)")
    group.addoption("--seed", type=int, default=1, help="other random numbers")
    group.addoption("--only", type=int, metavar="ROUND", help="only this round of a harness")
    group.addoption(
        "--long",
        dest="long_minutes",
        type=float,
        nargs="?",
        const=5.0,
        metavar="MINUTES",
        help="run each harness for so long (5 minutes when no number is given) and add to its figures",
    )
