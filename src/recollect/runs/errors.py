"""The error that stops a run and is no defect of the program."""


class RunError(RuntimeError):
    """A run had to stop. The message says at which step, why, what still stands and what to do."""
