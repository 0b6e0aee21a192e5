"""How the weights of a block are drawn."""

from torch import nn


def xavier(module: nn.Module) -> None:
    """Draw every linear map below ``module`` from Glorot's uniform distribution and zero its bias.

        W ~ U(-a, a),  a = sqrt(6 / (fan_in + fan_out))

    What Vision Transformer code uses; torch's own default is narrower for short fans.
    """
    for child in module.modules():
        if isinstance(child, nn.Linear):
            nn.init.xavier_uniform_(child.weight)
            if child.bias is not None:
                nn.init.zeros_(child.bias)
