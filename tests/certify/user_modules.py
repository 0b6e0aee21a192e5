"""Modules that somebody could ask to certify as ``package.module:factory``, right and wrong."""

from dataclasses import dataclass

import zoo
from torch import nn

from recollect.cores.config import CoreConfig

plain = zoo.Recurrent()


def recurrent() -> nn.Module:
    return zoo.Recurrent()


def late() -> nn.Module:
    return zoo.ResetsOneStepLate()


def sized(width: int) -> nn.Module:
    return zoo.Recurrent(width)


@dataclass(frozen=True, kw_only=True)
class SizedConfig(CoreConfig):
    width: int

    def build(self, input_dim: int) -> zoo.Recurrent:
        return zoo.Recurrent(self.width)


def number() -> int:
    return 7


class Nested:
    Core = zoo.Recurrent


text = "not a core"
