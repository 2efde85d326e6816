"""``queue.yml``: its parts by environment, and what variables stand for."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from nobroker.running.config import WorkerConfig

from .conftest import Load

Problems = Callable[..., list[str]]

KEYED = """
default: &usual
  shutdown_timeout: 5s
  scheduler: {recurring: a.yml}
  workers: [{threads: 2}]
development:
production:
  scheduler: {enabled: false}
  workers: [{threads: 8, queues: $QUEUES}]
staging:
  <<: *usual
  shutdown_timeout: 1m
"""


def test_the_environment_is_laid_over_the_default(loaded: Load) -> None:
    found = loaded(KEYED)
    assert (found.environment, found.config.workers[0].threads) == ("development", 2)
    found = loaded(None, {"NOBROKER_ENV": "production", "QUEUES": "a,b"})
    assert found.config.workers == (WorkerConfig(threads=8, queues=("a", "b")),)
    assert found.config.shutdown_timeout == 5.0
    assert (found.config.scheduler.enabled, found.config.scheduler.recurring) == (False, "a.yml")
    found = loaded(None, {"NOBROKER_ENV": "staging"})
    assert (found.config.shutdown_timeout, found.config.workers[0].threads) == (60.0, 2)


def test_an_environment_that_is_not_there(problems: Problems, loaded: Load) -> None:
    assert problems(KEYED, {"NOBROKER_ENV": "producton"}) == [
        "queue.yml: it is keyed by environment, and has no 'producton' (NOBROKER_ENV);"
        " did you mean production?"
    ]
    assert problems("staging: {shutdown_timeout: 1}\nproduction: {shutdown_timeout: 1}") == [
        "queue.yml: it is keyed by environment, and has no 'development' (NOBROKER_ENV);"
        " there are: staging, production"
    ]
    assert loaded("default: {shutdown_timeout: 1}\nstaging:\n").config.shutdown_timeout == 1
    first, second = problems("schedulr: {enabled: false}")
    assert first.endswith("is schedulr meant to be the key scheduler?")
    assert second.endswith("schedulr.enabled: there is no such key here; it belongs to scheduler")


def test_mistakes_in_other_environments_are_found_but_their_variables_are_not_needed(
    problems: Problems,
) -> None:
    text = KEYED.replace("threads: 8", "thread: 8")
    assert problems(text) == [
        "queue.yml, line 9, production.workers[0].thread: there is no such key; did you mean threads?"
    ]


# -- variables


@pytest.mark.parametrize(
    "said, threads",
    [("$N", 7), ("${N}", 7), ('"$N"', 7), ("${NONE:-3}", 3), ("${EMPTY:-3}", 3), ("1${N}", 17)],
)
def test_variables(loaded: Load, said: str, threads: int) -> None:
    found = loaded(f"workers:\n- threads: {said}", {"N": "7", "EMPTY": ""})
    assert found.config.workers[0].threads == threads


def test_variables_in_lists_and_dollars(loaded: Load) -> None:
    text = "workers:\n- queues: [$MORE, 'cash$$', \"${X:-z$$}\"]\n  max_jobs: $NONE\nquiet_then_exit: $YES"
    found = loaded(text, {"MORE": "a, b*", "NONE": "none", "YES": "Yes"})
    assert found.config.workers[0].queues == ("a", "b*", "cash$", "z$$")
    assert found.config.workers[0].max_jobs is None
    assert found.config.quiet_then_exit


def test_what_is_wrong_with_variables(problems: Problems) -> None:
    text = (
        "shutdown_timeout: $TIME\nheartbeat_interval: ${BEAT}\nquiet_then_exit: $ 5\nworkers:\n- threads: $N"
    )
    assert problems(text, {"N": "many"}) == [
        "queue.yml, line 1, shutdown_timeout: the variable TIME is not set;"
        " ${TIME:-...} says what it is then",
        "queue.yml, line 2, heartbeat_interval: the variable BEAT is not set;"
        " ${BEAT:-...} says what it is then",
        "queue.yml, line 3, quiet_then_exit: a $ stands before the name of a variable, $NAME or ${NAME};"
        " one dollar is $$",
        "queue.yml, line 5, workers[0].threads: it is a whole number from 1 to 1,024, not 'many'",
    ]
