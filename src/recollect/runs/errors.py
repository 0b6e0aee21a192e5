"""Errors that stop a run for external reasons."""


class RunError(RuntimeError):
    """A run had to stop. The message names the step, the reason, the last checkpoint and the remedy."""


class StepError(RunError):
    """A step failed without changing the trainer, so that the previous step can be saved.

    Args:
        message: what happened, without a full stop.
        remedy: instead of the remedy of the class.
    """

    remedy = "resume when the cause is gone"

    def __init__(self, message: str, remedy: str | None = None) -> None:
        super().__init__(message)
        if remedy is not None:
            self.remedy = remedy

    def advice(self, then: str = "resume") -> str:
        """Return the remedy as a sentence without a full stop, in which "then resume" becomes "then" and ``then``."""
        remedy = self.remedy.replace("then resume", f"then {then}")
        return remedy[0].upper() + remedy[1:]


class NonFiniteError(StepError):
    """A number of the trainer is NaN or infinite."""

    remedy = "start again with a lower learning rate, more warm-up steps or gradient clipping, or look at the inputs"


class WorldError(StepError):
    """A world raised an error, hangs, or returned invalid data."""

    remedy = "fix the world, then resume"


class OutOfMemoryError(StepError):
    """A step needed more memory than there is."""

    remedy = "make the sizes of the run smaller, or resume where there is more memory"
