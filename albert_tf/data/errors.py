"""The error that commands report to their users."""


class UserError(ValueError):
    """Raised if an argument, a file or a setting of the user is wrong.

    Commands print the message without a stack trace.
    """

    # With any other constructor, AutoGraph changes the class of exceptions in a `tf.function`.
    __init__ = Exception.__init__
