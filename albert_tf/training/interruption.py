"""Signals that ask a run to stop: the steps under way end, are saved, and the process exits.

Schedulers send SIGTERM or SIGUSR1 some seconds before they take a machine away, Ctrl-C sends
SIGINT, and a terminal that is closed SIGHUP. The exit status is 128 and the signal's number, as of
a process that the signal ended: what follows a command that was finished must not follow one that
was not. Outside of commands, in a notebook or at the prompt, Ctrl-C raises KeyboardInterrupt once
the step is saved.
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
_LOOK_AGAIN = signal.SIGALRM  # sent by this process to itself
_SECONDS_BETWEEN_LOOKS = 0.02

_deferred: BaseException | None = None  # to be raised outside of TensorFlow
_next_look: tuple[threading.Timer, Any] | None = None  # and the earlier handler of `_LOOK_AGAIN`


class _Stopped(SystemExit):
    """A signal ends a process that has nothing to save."""

    code: int


@contextmanager
def _handling(handler: Any) -> Iterator[None]:
    earlier = _set_handlers(handler)
    try:
        yield
    finally:
        _restore_handlers(earlier)


def end_on_signals() -> AbstractContextManager[None]:
    """Inside, a signal ends the process by `SystemExit`, so that what was begun is tidied up.

    A second signal kills it. While a training runs, `Interruption` takes the signals.
    """
    return _handling(_end)


def die_on_signals() -> AbstractContextManager[None]:
    """Inside, a signal kills the process: for waits in which Python cannot run its handlers."""
    return _handling(signal.SIG_DFL)


def _end(number: int, frame: FrameType | None) -> None:
    _set_handlers(signal.SIG_DFL)
    _raise_outside_tensorflow(_Stopped(128 + number), frame)


def _raise_outside_tensorflow(error: BaseException, frame: FrameType | None) -> None:
    """Raises in a handler of a signal, or else as soon as no function of TensorFlow is running.

    Its C++ code calls Python functions, and some of it crashes when one raises.
    """
    global _deferred, _next_look
    _deferred = error
    if not _is_in_tensorflow(frame):
        _raise_deferred()
    _stop_looking()
    earlier = signal.signal(_LOOK_AGAIN, _look_again)
    main_thread = threading.main_thread().ident
    timer = threading.Timer(_SECONDS_BETWEEN_LOOKS, signal.pthread_kill, (main_thread, _LOOK_AGAIN))
    timer.daemon = True
    timer.start()
    _next_look = timer, earlier


def _stop_looking() -> None:
    """Gives `_LOOK_AGAIN` its earlier handler, after making sure that it is not sent any more."""
    global _next_look
    if _next_look is not None:
        timer, earlier = _next_look
        timer.cancel()
        timer.join()
        _next_look = None
        signal.signal(_LOOK_AGAIN, earlier)


def _look_again(number: int, frame: FrameType | None) -> None:
    if _deferred is not None:
        _raise_outside_tensorflow(_deferred, frame)


def _raise_deferred() -> None:
    """Raises what is to be raised outside of TensorFlow, if there is such a thing."""
    global _deferred
    if threading.current_thread() is not threading.main_thread():
        return  # signals belong to the main thread
    _stop_looking()
    error, _deferred = _deferred, None
    if isinstance(error, _Stopped):
        # Only now: while TensorFlow is imported, nothing that is written is shown.
        _tell(f"{signal.Signals(error.code - 128).name}: stopped")
    if error is not None:
        raise error


def _is_in_tensorflow(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_globals.get("__name__", "").partition(".")[0] == "tensorflow":
            return True
        frame = frame.f_back
    return False


def _set_handlers(handler: Any) -> dict[signal.Signals, Any]:
    """Gives the signals a handler, those that are ignored excepted; returns the earlier ones.

    Outside of the main thread Python delivers no signals, and nothing is set.
    """
    earlier = {}
    if threading.current_thread() is threading.main_thread():
        for number in _SIGNALS:
            # None: set by another library than Python, which could not be put back.
            if signal.getsignal(number) not in (signal.SIG_IGN, None):
                earlier[number] = signal.signal(number, handler)
    return earlier


def _restore_handlers(handlers: Mapping[signal.Signals, Any]) -> None:
    for number, handler in handlers.items():
        signal.signal(number, handler)


def _tell(line: str) -> None:
    """Prints a line in a handler of a signal: `logging` may be locked where the signal came."""
    os.write(2, f"\n{line}\n".encode())  # below a progress bar, if there is one


class TrainingInterrupted(SystemExit):
    """A signal asked for the end of the training; what was trained is saved.

    Ends the process with status 128 and the signal's number unless it is caught. Of Ctrl-C see
    `Interruption.stopped`.
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
        self._raises_keyboard_interrupt = False
        self._earlier: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interruption:
        _raise_deferred()  # a signal that came before has asked for the end
        self._earlier = _set_handlers(self._note)
        return self

    def __exit__(self, *error: object) -> None:
        self._hand_back()

    def _hand_back(self) -> None:
        """Lets signals do again what they did before."""
        _restore_handlers(self._earlier)
        self._earlier = {}

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.signal = signal.Signals(number)
        earlier = self._earlier.get(self.signal)
        is_ctrl_c = self.signal is signal.SIGINT
        self._raises_keyboard_interrupt = is_ctrl_c and earlier not in (_end, signal.SIG_DFL)
        self._hand_back()
        if self._is_idle:
            _raise_outside_tensorflow(TrainingInterrupted(128 + number), frame)
            return
        _tell(
            f"{self.signal.name}: stopping after the steps under way, which are saved first; a "
            "second signal stops at once"
        )

    @contextmanager
    def nothing_to_save(self, step: int) -> Iterator[None]:
        """Inside, a signal stops at once: `step` is saved, and what is done can be repeated."""
        self._is_idle = True
        try:
            if self.signal is None:
                yield
            _raise_deferred()
        except TrainingInterrupted:
            pass  # raised again, after telling of it
        finally:
            self._is_idle = False
        if self.signal is not None:
            raise self.stopped(step)

    def stopped(self, step: int) -> BaseException:
        """What to raise once `step` is saved; tells of it. Another worker may have been asked.

        It is KeyboardInterrupt for Ctrl-C outside of commands, else TrainingInterrupted.
        """
        number = self.signal or signal.SIGTERM
        by = "" if self.signal else " of another worker"
        what = f"{number.name}{by}: stopped after step {step}, which is saved."
        logging.info("%s Run the same command to resume.", what)
        if self._raises_keyboard_interrupt:
            return KeyboardInterrupt(f"{what} The same call resumes.")
        return TrainingInterrupted(128 + number)
