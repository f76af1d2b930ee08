"""Signals that ask a training run to stop: the step ends, is saved, and the process exits.

Schedulers send SIGTERM some seconds before they take a machine away; Ctrl-C sends SIGINT. The exit
status is 128 and the signal's number, as of a process that the signal ended: what follows a command
that was finished must not follow one that was not.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from absl import logging

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class TrainingInterrupted(SystemExit):
    """A signal asked for the end of the training; what was trained is saved.

    Ends the process with status 143 (SIGTERM) or 130 (SIGINT) unless it is caught.
    """


class Interruption:
    """Notes the first signal that asks to stop; a second one ends the process at once.

    Entered by the main thread; elsewhere Python does not deliver signals, and nothing is noted. A
    signal that the process ignores (as SIGINT in the background of a script) stays ignored.

    Attributes:
        signal: the one received, None before that.
    """

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None
        self._is_idle = False  # nothing is to be saved
        self._earlier: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interruption:
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                # None: set by another library than Python, which could not be put back.
                if signal.getsignal(number) not in (signal.SIG_IGN, None):
                    self._earlier[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *error: object) -> None:
        self._hand_back()

    def _hand_back(self) -> None:
        """Lets signals do again what they did before."""
        for number, handler in self._earlier.items():
            signal.signal(number, handler)
        self._earlier.clear()

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.signal = signal.Signals(number)
        self._hand_back()
        if self._is_idle:
            raise TrainingInterrupted(128 + number)
        # Not through `logging`, whose locks and buffers may be in use where the signal came.
        os.write(
            2,
            f"\n{self.signal.name}: stopping after this step, which is saved first; a second signal"
            " stops at once\n".encode(),
        )

    @contextmanager
    def nothing_to_save(self, step: int) -> Iterator[None]:
        """Inside, a signal stops at once: `step` is saved, and what is done can be repeated."""
        self._is_idle = True
        try:
            if self.signal is None:
                yield
        except TrainingInterrupted:
            pass  # raised again, after telling of it
        finally:
            self._is_idle = False
        if self.signal is not None:
            raise self.stopped(step)

    def stopped(self, step: int) -> TrainingInterrupted:
        """What to raise once `step` is saved; tells of it. Another worker may have been asked."""
        number = self.signal or signal.SIGTERM
        by = "" if self.signal else " of another worker"
        logging.info(
            "%s%s: stopped after step %d, which is saved. The same command goes on from there.",
            number.name,
            by,
            step,
        )
        return TrainingInterrupted(128 + number)
