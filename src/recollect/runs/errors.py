"""The errors that stop a run and are no defect of the program."""


class RunError(RuntimeError):
    """A run had to stop. The message says at which step, why, what still stands and what to do."""


class StepError(RunError):
    """A trainer could not do its step. It raises this with nothing changed: the step before can be saved.

    Args:
        message: what happened, without a full stop.
        remedy: what a person can do, where the class has no good advice.
    """

    remedy = "resume when the cause is gone"
    """What a person can do."""

    def __init__(self, message: str, remedy: str | None = None) -> None:
        super().__init__(message)
        if remedy is not None:
            self.remedy = remedy

    def advice(self, then: str = "resume") -> str:
        """Return the remedy as a sentence without a full stop, with ``then`` in place of its last word "resume"."""
        remedy = self.remedy.replace("then resume", f"then {then}")
        return remedy[0].upper() + remedy[1:]


class NonFiniteError(StepError):
    """A trainer met NaN or infinity."""

    remedy = "start again with a lower learning rate, more warm-up steps or gradient clipping, or look at the inputs"


class WorldError(StepError):
    """A world raised an error, does not answer, or answers nonsense."""

    remedy = "put the world right, then resume"


class OutOfMemoryError(StepError):
    """There was not the memory that a step asked for."""

    remedy = "make the sizes of the run smaller, or resume where there is more memory"
