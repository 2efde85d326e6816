#!/usr/bin/env python3
"""Everything one does with this checkout, in one command; needs nothing but Python 3.11 or newer.

    python make.py demo  [args]   watch real work flow through a durable queue
    python make.py test  [args]   run the tests; arguments go to pytest
    python make.py coverage       unit tests come by every branch of the engine and the state machine
    python make.py bench [args]   measure, side by side with others
    python make.py check          ruff, mypy --strict, the house rules, what `import nobroker` loads
    python make.py build          wheel, source distribution and a runnable nobroker.pyz, in dist/

`python make.py COMMAND --help` says more about one command.

The first run makes an environment in .venv beside this file and installs the project and its tools there, so
that edits count at once; later runs reuse it. $NOBROKER_VENV names another place for it.
"""

import sys

if sys.version_info < (3, 11):  # noqa: UP036 - the point of it: say so, in words an older Python can read
    sys.exit(
        "make.py needs Python 3.11 or newer, this is " + sys.version.split()[0] + "; try: python3.12 make.py"
    )

import hashlib
import inspect
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent
VENV = Path(os.environ.get("NOBROKER_VENV") or ROOT / ".venv").resolve()
PYTHON = VENV / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
STAMP = VENV / "nobroker-installed"
DIST = ROOT / "dist"


def demo(args: list[str]) -> int:
    """demo [args]: run `nobroker demo`; arguments are passed to it (`make.py demo -- --help` lists them).

    Enqueues every file of Python's standard library, hashes them in several processes, kills one on the way,
    and shows that nothing was lost. Exit code 0 only if all of it was true.
    """
    return run(PYTHON, "-m", "nobroker", "demo", *args)


def test(args: list[str]) -> int:
    """test [args]: run the tests, one process per core; arguments go to pytest.

    python make.py test -k lease            the tests with "lease" in their names
    python make.py test tests/unit -x       one folder, until the first failure
    python make.py test -n 0 --pdb          in one process, with a debugger
    """
    chosen = any(a.startswith(("-n", "--numprocesses")) or a in ("--pdb", "-pno:xdist") for a in args)
    # A test that hangs ends its process, which counts as failed, and the others go on in a new one.
    ends = ["-o", "faulthandler_exit_on_timeout=true"]
    parallel = [] if chosen else ["-n", "auto", "--dist", "worksteal", *ends]
    return run(PYTHON, "-m", "pytest", *parallel, *args)


def coverage(args: list[str]) -> int:
    """coverage [args]: see that the unit tests of the engine and of the state machine (nobroker_mmap,
    nobroker/state) come by every line and branch of them, and say which they miss; arguments go to pytest.

    Exit code 0 only if all of these tests pass and nothing is missed.
    """
    measured = [PYTHON, "-m", "coverage"]
    run(*measured, "erase")
    tests = ["tests/unit/mmap", "tests/unit/state", "tests/unit/test_tip.py"]
    # What other processes do is not seen, and what random tests come by is chance.
    tests += ["--ignore", "tests/unit/mmap/test_processes.py", "-k", "not runTest"]
    tested = run(*measured, "run", "-m", "pytest", "-n", "auto", "--dist", "worksteal", *tests, *args)
    run(*measured, "combine", "-q")
    return run(*measured, "report") or tested


def bench(args: list[str]) -> int:
    """bench [args]: run benchmarks/compare.py; arguments are passed to it."""
    script = ROOT / "benchmarks" / "compare.py"
    if not script.is_file():
        print(
            "make.py bench: this checkout has no benchmarks/compare.py, so nothing to measure",
            file=sys.stderr,
        )
        return 1
    return run(PYTHON, script, *args)


def check(args: list[str]) -> int:
    """check: ruff, mypy --strict, the house rules of tests/test_tidy.py, and what `import nobroker` loads.

    All of them run, whatever the others say. Exit code 0 only if all pass.
    """
    if args:
        return usage(f"check takes no arguments, got: {' '.join(args)}")
    steps: dict[str, Callable[[], int]] = {
        "ruff": lambda: run(PYTHON, "-m", "ruff", "check", "."),
        "mypy --strict": typecheck,
        "house rules and imports": lambda: run(
            PYTHON, "-m", "pytest", "-q", "tests/test_tidy.py", "tests/test_packaging.py"
        ),
    }
    failed = []
    for name, step in steps.items():
        print(f"== {name}", flush=True)
        if step() != 0:
            failed.append(name)
    print("check: " + (f"failed: {', '.join(failed)}" if failed else "all passed"))
    return 1 if failed else 0


def build(args: list[str]) -> int:
    """build: make the wheel, the source distribution and nobroker.pyz in dist/.

    nobroker.pyz is the whole command line with its dependencies in one file; it runs on the operating system
    and Python version it was built with: python dist/nobroker.pyz --help
    """
    if args:
        return usage(f"build takes no arguments, got: {' '.join(args)}")
    for old in [*DIST.glob("nobroker-*"), DIST / "nobroker.pyz"]:
        old.unlink(missing_ok=True)
    code = run(PYTHON, "-m", "build", "--no-isolation", "--outdir", DIST, ROOT)
    if code != 0:
        return code
    (wheel,) = DIST.glob("nobroker-*.whl")
    interpreter = [] if os.name == "nt" else ["-p", "/usr/bin/env python3"]
    code = run(PYTHON, "-m", "shiv", "-q", "-c", "nobroker", *interpreter, "-o", DIST / "nobroker.pyz", wheel)
    if code == 0:
        for made in sorted(DIST.iterdir()):
            print(f"{made.stat().st_size:>10,} bytes  {made}")
    return code


def typecheck() -> int:
    """mypy sees the folder `tools` under the name that it is installed and imported by."""
    stage = VENV / "typecheck"
    shutil.rmtree(stage, ignore_errors=True)
    package = stage / "nobroker_tools"
    shutil.copytree(ROOT / "tools", package, ignore=shutil.ignore_patterns("__pycache__"))
    result = subprocess.run(
        [PYTHON, "-m", "mypy", "--strict", "nobroker", "nobroker_mmap", package],
        cwd=ROOT,
        env={**os.environ, "MYPYPATH": str(stage)},
        stdout=subprocess.PIPE,
        text=True,
    )
    staged = {str(package), os.path.relpath(package, ROOT)}
    for name in sorted(staged, key=len, reverse=True):
        result.stdout = result.stdout.replace(name, "tools")
    print(result.stdout, end="", flush=True)
    return result.returncode


def run(*command: str | Path) -> int:
    """Run a command in the checkout; its exit code, with Ctrl-C left to the command itself."""
    process = subprocess.Popen([str(part) for part in command], cwd=ROOT)
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:
            continue


def ensure_environment() -> None:
    """Make or renew the environment, unless it is there and of this place and these dependencies."""
    project = (ROOT / "pyproject.toml").read_bytes()
    wanted = hashlib.sha256(f"{ROOT}\n{PYTHON}\n".encode() + project).hexdigest()
    if PYTHON.exists() and STAMP.is_file() and STAMP.read_text() == wanted:
        return
    if not works(PYTHON):
        print(f"make.py: making an environment in {VENV} (once)", file=sys.stderr, flush=True)
        must(
            "make the environment; where Python comes without venv, install it (Debian: python3-venv)",
            sys.executable,
            "-m",
            "venv",
            "--clear",
            VENV,
        )
    print("make.py: installing nobroker and what its checks need", file=sys.stderr, flush=True)
    pip = [PYTHON, "-m", "pip", "install", "-q", "--disable-pip-version-check", "-e"]
    must("install the project and its dependencies; pip says why above", *pip, f"{ROOT}[dev]")
    if run(*pip, f"{ROOT}[faults]") != 0:
        print(
            "make.py: not all of the extra `faults` is there; tests that need it are skipped", file=sys.stderr
        )
    STAMP.write_text(wanted)


def works(python: Path) -> bool:
    """Whether this is an interpreter that starts, is new enough and has pip."""
    if not python.exists():
        return False
    probe = "import sys, pip; sys.exit(sys.version_info < (3, 11))"
    return subprocess.run([python, "-c", probe], stderr=subprocess.DEVNULL).returncode == 0


def must(purpose: str, *command: str | Path) -> None:
    if run(*command) != 0:
        sys.exit(f"make.py: could not {purpose}")


def usage(problem: str) -> int:
    print(f"make.py: {problem}\n\n{inspect.getdoc(sys.modules[__name__])}", file=sys.stderr)
    return 2


def main(argv: list[str]) -> int:
    commands = {function.__name__: function for function in (demo, test, coverage, bench, check, build)}
    if not argv:
        return usage("which command?")
    name, *args = argv
    if name in ("-h", "--help", "help"):
        print(inspect.getdoc(sys.modules[__name__]))
        return 0
    if name not in commands:
        return usage(f"no command {name!r}; there are: {', '.join(commands)}")
    if args and args[0] in ("-h", "--help"):
        print("python make.py " + (inspect.getdoc(commands[name]) or ""))
        return 0
    ensure_environment()
    return commands[name](args[1:] if args[:1] == ["--"] else args)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
