"""Modules that somebody could ask to certify as ``package.module:factory``, right and wrong."""

import zoo
from torch import nn

plain = zoo.Recurrent()


def recurrent() -> nn.Module:
    return zoo.Recurrent()


def late() -> nn.Module:
    return zoo.ResetsOneStepLate()


def sized(width: int) -> nn.Module:
    return zoo.Recurrent(width)


def number() -> int:
    return 7


class Nested:
    Core = zoo.Recurrent


text = "not a core"
