"""Cores inside other engines, one file for each: TorchRL, Stable-Baselines3 and RLlib.

No other part of the library imports an engine, and importing this package imports none.
"""


def missing_engine(extra: str, error: ImportError) -> ImportError:
    """Return the error for an engine that is not installed, with the command that installs it."""
    return ImportError(f"recollect.adapters.{extra}: {error}: run pip install 'recollect-torch[{extra}]'")
