"""Signals that ask a run to stop.

Schedulers send SIGTERM or SIGUSR1 some seconds before they stop a machine, Ctrl-C sends SIGINT, and
closing a terminal sends SIGHUP. During training, the current steps are finished and saved first.
At other times, a signal ends a command immediately. The exit status is 128 plus the number of the
signal. In Python, Ctrl-C raises KeyboardInterrupt after the steps were saved.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from types import FrameType
from typing import Any

from absl import logging

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)

_standard_error = 2
_evaluating: tuple[Interruption, int] | None = None  # with the step that is already saved


@contextmanager
def end_on_signals() -> Iterator[None]:
    """Context manager for commands. A signal prints one line and ends the process immediately."""
    global _standard_error
    # A copy, because the original is redirected while TensorFlow is imported.
    _standard_error = os.dup(2)
    try:
        with _handling(_end):
            yield
    finally:
        os.close(_standard_error)
        _standard_error = 2


def die_on_signals() -> AbstractContextManager[None]:
    """Context manager for code in which Python cannot run handlers. Signals kill the process."""
    return _handling(signal.SIG_DFL)


@contextmanager
def _handling(handler: Any) -> Iterator[None]:
    earlier = _set_handlers(handler)
    try:
        yield
    finally:
        _restore_handlers(earlier)


def _end(number: int, frame: FrameType | None) -> None:
    _print(f"{signal.Signals(number).name}: stopped")
    # Not an exception, because TensorFlow's C++ code may crash if a Python callback raises.
    os._exit(128 + number)


def _set_handlers(handler: Any) -> dict[signal.Signals, Any]:
    """Sets the handler of all signals that are not ignored. Returns the earlier handlers."""
    earlier = {}
    if threading.current_thread() is threading.main_thread():  # Python allows no other thread
        for number in _SIGNALS:
            # `None` means that the handler was not set by Python, and cannot be restored.
            if signal.getsignal(number) not in (signal.SIG_IGN, None):
                earlier[number] = signal.signal(number, handler)
    return earlier


def _restore_handlers(handlers: Mapping[signal.Signals, Any]) -> None:
    for number, handler in handlers.items():
        signal.signal(number, handler)


def _print(line: str) -> None:
    """Prints a line. Signal handlers cannot use `logging`, whose locks may be held."""
    os.write(_standard_error, f"\n{line}\n".encode())  # below a progress bar


class TrainingInterrupted(SystemExit):
    """Ends the process with status 128 + signal number after the last step was saved."""


class Interruption:
    """Context manager that stores the first signal in `signal`. A second signal is not caught."""

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None
        self._raises_keyboard_interrupt = False
        self._earlier: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interruption:
        self._earlier = _set_handlers(self._note)
        return self

    def __exit__(self, *error: object) -> None:
        _restore_handlers(self._earlier)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.signal = signal.Signals(number)
        earlier = self._earlier.get(self.signal)
        is_ctrl_c = self.signal is signal.SIGINT
        self._raises_keyboard_interrupt = is_ctrl_c and earlier not in (_end, signal.SIG_DFL)
        _restore_handlers(self._earlier)
        _print(
            f"{self.signal.name}: stopping after the current steps, which are saved first. A "
            "second signal stops immediately."
        )

    @contextmanager
    def evaluation(self, step: int) -> Iterator[None]:
        """Context manager in which a signal interrupts the evaluation of the saved `step`."""
        global _evaluating
        _evaluating = self, step
        try:
            raise_if_interrupted()
            yield
            raise_if_interrupted()
        finally:
            _evaluating = None

    def stopped(self, step: int) -> BaseException:
        """Logs that training stops after the saved `step`, and returns the exception that ends it.

        The exception is KeyboardInterrupt for Ctrl-C in Python, otherwise TrainingInterrupted.
        """
        number = self.signal or signal.SIGTERM
        origin = "" if self.signal else " of another worker"
        message = f"{number.name}{origin}: stopped after step {step}, which is saved."
        logging.info("%s Run the same command to resume.", message)
        if self._raises_keyboard_interrupt:
            return KeyboardInterrupt(f"{message} Call the same function to resume.")
        return TrainingInterrupted(128 + number)


def raise_if_interrupted() -> None:
    """Ends an evaluation during training if a signal was received. Called between batches."""
    if _evaluating and _evaluating[0].signal is not None:
        interruption, step = _evaluating
        raise interruption.stopped(step)
