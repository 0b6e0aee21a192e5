"""Check of the tokens that a model is given, a line that names the value and the remedy."""

from torch import Tensor


def require_tokens(tokens: Tensor, vocabulary: int) -> None:
    """Raise ``ValueError`` where a token on the CPU is outside the vocabulary.

    On an accelerator the check would wait for the device at every step; the lookup itself fails there.
    """
    if tokens.device.type == "cpu" and tokens.numel() and not 0 <= tokens.min() <= tokens.max() < vocabulary:
        wrong = tokens[(tokens < 0) | (tokens >= vocabulary)][0].item()
        raise ValueError(f"token {wrong} is outside the vocabulary of {vocabulary}: use 0..{vocabulary - 1}")
