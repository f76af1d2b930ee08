"""The error that commands report to their users, and texts that are safe to print."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

# A URL, and its user name and password, query and fragment. TF-Hub's own parameter is public.
_URL = re.compile(r"[a-z][a-z0-9+.-]*://\S+", re.IGNORECASE)
_SECRETS = re.compile(
    r"(?<=://)[^/?#]*@|(?<=https://)\S*@|(?<=http://)\S*@"
    r"|(?<=[?&#])(?!tf-hub-format=|sha256=)[^&#]+(?<![].,:;)'\"`])",
    re.IGNORECASE,
)


def visible(text: str, kept: str = "") -> str:
    """Replaces control characters and line ends, except those in `kept`, by escape sequences."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in kept else ascii(c)[1:-1] for c in text)


def without_secrets(text: str) -> str:
    """Replaces user names, passwords and parameters in the URLs of a text by `***`."""
    return _URL.sub(lambda url: _SECRETS.sub("***", url[0]), text)


def printable(text: str) -> str:
    """Returns a text of one or more lines without secrets and control characters."""
    return visible(without_secrets(text), kept="\n")


class UserError(ValueError):
    """Raised if an argument, a file or a setting of the user is wrong.

    Commands print the message without a stack trace.
    """

    # With any other constructor, AutoGraph changes the class of exceptions in a `tf.function`.
    __init__ = Exception.__init__

    def __str__(self) -> str:
        """Returns the message without secrets and control characters."""
        return printable(super().__str__())


@contextmanager
def extra_packages(extra: str) -> Iterator[None]:
    """Converts the error for a missing package of an extra of this package into a UserError."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise UserError(
            f"A package is not installed ({error}). Install it with: pip install "
            f'"albert_tf[{extra}]"; in a checkout: pip install -r requirements/{extra}.txt.'
        ) from error
