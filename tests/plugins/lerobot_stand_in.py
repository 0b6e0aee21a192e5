"""A small stand-in for what LeRobot asks of a policy and gives it, after its public description ("Adding a policy")."""

import json
import sys
import types
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar

from safetensors.torch import load_model, save_model
from torch import nn


class NormalizationMode(StrEnum):
    IDENTITY = "IDENTITY"
    MEAN_STD = "MEAN_STD"


@dataclass
class PreTrainedConfig:
    choices: ClassVar[dict[str, type]] = {}
    n_obs_steps: int = 1
    input_features: dict[str, Any] = field(default_factory=dict)
    output_features: dict[str, Any] = field(default_factory=dict)
    device: str | None = "cpu"

    @classmethod
    def register_subclass(cls, name):
        def register(sub):
            cls.choices[name] = sub
            return sub

        return register

    @property
    def type(self):
        return next(name for name, cls in self.choices.items() if cls is type(self))

    def save(self, folder):
        (folder / "config.json").write_text(json.dumps(asdict(self) | {"type": self.type}))

    @classmethod
    def from_pretrained(cls, folder):
        data = json.loads((Path(folder) / "config.json").read_text())
        return cls.choices[data.pop("type")](**data)


class PreTrainedPolicy(nn.Module):
    config_class: Any = None
    name: Any = None

    def __init__(self, config, *inputs, **kwargs):
        super().__init__()
        if not isinstance(config, PreTrainedConfig):
            raise ValueError("config should be a PreTrainedConfig")
        self.config = config

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        if not cls.config_class or not cls.name:
            raise TypeError("config_class and name must be defined")

    def save_pretrained(self, folder):
        Path(folder).mkdir()
        self.config.save(Path(folder))
        save_model(self, str(Path(folder) / "model.safetensors"))

    @classmethod
    def from_pretrained(cls, folder):
        policy = cls(PreTrainedConfig.from_pretrained(folder))
        load_model(policy, str(Path(folder) / "model.safetensors"), strict=True)
        return policy.eval()


@dataclass
class AdamWConfig:
    lr: float = 1e-3


def make_default_pre_post_processors(config, dataset_stats=None, *, normalizer_device=None):
    assert set(config.normalization_mapping.values()) == {NormalizationMode.IDENTITY}
    return (lambda batch: batch), (lambda action: action.cpu())


def policy_class(name):
    """As LeRobot finds it: by the name and the module of the registered config."""
    config = PreTrainedConfig.choices[name]
    module = sys.modules[config.__module__.replace("configuration_", "modeling_")]
    return getattr(module, config.__name__.removesuffix("Config") + "Policy")


def modules():
    """The stand-in under LeRobot's names."""
    parts = {
        "lerobot": {},
        "lerobot.configs": {"PreTrainedConfig": PreTrainedConfig, "NormalizationMode": NormalizationMode},
        "lerobot.optim": {"AdamWConfig": AdamWConfig},
        "lerobot.policies": {"PreTrainedPolicy": PreTrainedPolicy},
        "lerobot.processor": {"make_default_pre_post_processors": make_default_pre_post_processors},
    }
    made = {}
    for name, content in parts.items():
        made[name] = types.ModuleType(name)
        vars(made[name]).update(content)
    return made
