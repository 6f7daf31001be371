"""The one exception that means "the input is wrong", told in one line."""


class InputError(ValueError):
    """Bad input: one line that names the file, node or flag, and the remedy.

    The command line prints the message and exits with status 2; anything else that
    escapes is a failure of ours.
    """
