"""The error that commands report to their users."""

from __future__ import annotations


class UserError(ValueError):
    """Raised if something that the user controls is wrong: an argument, a file or a setting.

    The message says what is wrong, what was received and what to do. Commands print the message
    without a stack trace.
    """

    # AutoGraph keeps the class of an exception in a `tf.function` only with this constructor.
    __init__ = Exception.__init__
