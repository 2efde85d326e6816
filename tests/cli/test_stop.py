"""Loops of commands end when a signal comes, at whatever moment of their wait."""

from __future__ import annotations

import os
import signal
import sys
import threading
from types import FrameType

import pytest

from nobroker.cli.signals import Stop, stop_on_signals

pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals that a process can send itself")


def test_a_signal_at_every_step_of_a_wait() -> None:
    """Each step of the loop's code is interrupted once, as a signal's handler interrupts it."""
    step, steps = 0, 1
    while step < steps:
        stop = Stop()
        steps = steps_of_a_wait(stop, at=step)
        assert stop.is_set() == (step < steps), "a wait may take fewer steps than the one before"
        step += 1
    assert steps > 5, "nothing was interrupted"


def steps_of_a_wait(stop: Stop, at: int) -> int:
    """Wait, and do what the handler does before the step of this number; how many steps there were.

    Handlers run in the thread that waits, between two steps. No signal is sent: each step has its turn.
    """
    number = 0

    def trace(frame: FrameType, event: str, arg: object) -> object:
        nonlocal number
        frame.f_trace_opcodes = True
        if event == "opcode":
            if number == at:
                stop.set()
            number += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        stop.wait(0.001)
    finally:
        sys.settrace(before)
    return number


def test_a_wait_ends_when_the_signal_comes() -> None:
    with stop_on_signals() as stop:
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
        assert stop.wait(30)
        assert stop.wait(30), "it stays set"


def test_a_wait_without_a_signal() -> None:
    with stop_on_signals() as stop:
        assert not stop.wait(0.001)
        assert not stop.is_set()


def test_the_handlers_come_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with stop_on_signals():
        assert signal.getsignal(signal.SIGTERM) is not before
    assert signal.getsignal(signal.SIGTERM) is before
