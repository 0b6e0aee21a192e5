"""The policy: an agent of Recollect that lives from step to step.

    policy.reset()                             all rows begin an episode
    policy.reset(torch.tensor([True, False]))  row 0 does
    action = policy.select_action(batch)       one step of memory, [batch, action]

A row's memory is cleared before the first step after its reset. The number of rows is that of the first call after a
reset of all rows.
"""

import json
from typing import Any

import torch
from gymnasium import spaces
from lerobot.policies import PreTrainedPolicy
from torch import Tensor

from recollect.agents.actor_critic import ActorCritic
from recollect.agents.contract import ActorInputs
from recollect.agents.spaces import is_image, parts
from recollect.training.saved_models import load_model

from .configuration_recollect import RecollectConfig

LANGUAGE = "language"


class RecollectPolicy(PreTrainedPolicy):
    """See the top of this file.

    Args:
        config: which run, or which agent.
        dataset_stats: not read: nothing is normalised.

    Raises:
        ValueError: no run and no description, a run that has no weights, or one whose actions are no vector.
    """

    config_class = RecollectConfig
    name = "recollect"

    def __init__(self, config: RecollectConfig, dataset_stats: Any = None, **kwargs: Any) -> None:
        super().__init__(config)
        config.validate_features()
        if config.description:
            about = json.loads(config.description)
            self.agent = ActorCritic.from_description(about["agent"])
        else:
            self.agent = load_model(config.run, best=config.best)
            if not isinstance(self.agent, ActorCritic):
                raise ValueError(f"run={config.run!r}: it did not act in a world; name one that did")
            words = self.agent.spec.words
            about = {"agent": self.agent.describe(), "words": list(words)}
            config.description, config.run = json.dumps(about), ""
        if not isinstance(self.agent.action_space, spaces.Box) or len(self.agent.action_space.shape) != 1:
            raise ValueError(f"actions are {self.agent.action_space}: LeRobot's are vectors of numbers, Box [n]")
        self.words: list[str] = about["words"]
        self.agent.eval()
        self.reset()

    def reset(self, rows: Tensor | None = None) -> None:
        """Let episodes begin at the next step.

        Args:
            rows: bool ``[batch]``, whose; None: all.

        Raises:
            ValueError: rows of another number than there are.
        """
        if rows is None:
            self._stream, self._first, self._action = None, None, None
            return
        if self._first is not None:
            if rows.shape != self._first.shape:
                raise ValueError(f"rows has shape {list(rows.shape)}, and there are {len(self._first)} rows")
            self._first = self._first | rows.to(self._first.device, torch.bool)

    @torch.no_grad()
    def select_action(self, batch: dict[str, Any], **kwargs: Any) -> Tensor:
        """One step of memory; the action of every row, ``[batch, action]``.

        Args:
            batch: one observation of every row, as LeRobot's processors give it; ``task`` is a list of sentences,
                ``reward`` ``[batch]`` what the last action of every row brought (0 where the batch has none).
            kwargs: not read.

        Raises:
            ValueError: a part of the observation is missing, there are other rows than since the last reset, or
                rewards of another shape.
        """
        observation = self._observed(batch)
        leaf = next(iter(_leaves(observation)))
        count, like = len(leaf), next(self.agent.parameters())
        if self._stream is None:
            self._stream = self.agent.stream(count)
            self._first = torch.ones(count, dtype=torch.bool, device=like.device)
            self._action = like.new_zeros(count, *self.agent.action_space.shape)
            self._output = None
        if count != len(self._first):
            raise ValueError(f"there are {count} rows now and were {len(self._first)}: call reset() in between")
        output = self._output
        inputs = ActorInputs(
            observation,
            self._action,
            self._rewards(batch, like.new_zeros(count)),
            like.new_zeros(count, self.agent.policy.num_parameters) if output is None else output.policy,
            like.new_zeros(count, self.agent.feature_dim)
            if output is None
            else output.features[..., : self.agent.feature_dim],
        )
        self._output = self._stream.step(inputs, self._first)
        self._first = torch.zeros_like(self._first)
        chosen = self.agent.distribution(self._output.policy)
        self._action = chosen.sample() if self.config.sample else chosen.mode()
        return self._action

    def predict_action_chunk(self, batch: dict[str, Any], **kwargs: Any) -> Tensor:
        """Not what this policy does: it decides anew at every step.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError("a policy with a memory decides step by step: call select_action once a tick")

    def forward(self, batch: dict[str, Any], **kwargs: Any) -> tuple[Tensor, dict[str, Any] | None]:
        """Not how it is trained: windows do not show what came before.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError(
            "lerobot-train shows windows, and a memory learns from whole episodes: "
            "recollect train WORLD --core ttm --trainer cloning --teacher lerobot:FOLDER"
        )

    def get_optim_params(self) -> Any:
        """All weights."""
        return self.agent.parameters()

    def _rewards(self, batch: dict[str, Any], none: Tensor) -> Tensor:
        """What the last actions brought, ``[batch]``; LeRobot's own loops do not tell it."""
        rewards = batch.get(self.config.keys.get("reward", "reward"))
        if rewards is None:
            return none
        rewards = torch.as_tensor(rewards, device=none.device).to(none.dtype)
        if rewards.shape != none.shape:
            raise ValueError(f"rewards have shape {list(rewards.shape)}, and there are {len(none)} rows")
        return rewards

    def _observed(self, batch: dict[str, Any]) -> Any:
        """The observation as the agent's space has it."""
        found: dict[str, Any] = {}
        like = next(self.agent.parameters())
        for name, space in parts(self.agent.observation_space):
            leaf = self._part(batch, name, space).to(like.device)
            if name == "observation":
                return leaf
            *path, last = name.split("/")
            at = found
            for key in path:
                at = at.setdefault(key, {})
            at[last] = leaf
        return found

    def _part(self, batch: dict[str, Any], name: str, space: Any) -> Tensor:
        short = name.replace("/", ".")
        alone = name == "observation"
        known = (
            ("observation.image", "observation.state")
            if alone
            else (f"observation.images.{short}", f"observation.{short}")
        )
        key = self.config.keys.get(short, next((key for key in known if key in batch), None))
        if short == LANGUAGE and key is None and "task" in batch:
            return self._sentences(batch["task"], space)
        if key is None or key not in batch:
            raise ValueError(f"the batch has no {key or ' or '.join(known)}: it has {', '.join(map(str, batch))}")
        values = batch[key]
        if isinstance(space, spaces.Box) and is_image(space):
            return _pictures(values, space)
        return values.long() if not isinstance(space, spaces.Box) else values.to(torch.float32)

    def _sentences(self, told: Any, space: Any) -> Tensor:
        """Sentences as the numbers of the run's words, ``[batch, words]``."""
        told = [told] if isinstance(told, str) else list(told)
        numbers = torch.zeros(len(told), space.shape[0], dtype=torch.long)
        for row, sentence in enumerate(told):
            unknown = [word for word in sentence.split() if word not in self.words]
            if unknown or len(sentence.split()) > space.shape[0]:
                raise ValueError(
                    f"task={sentence!r}: this policy knows {', '.join(self.words[1:])}, {space.shape[0]} at a time"
                )
            for at, word in enumerate(sentence.split()):
                numbers[row, at] = self.words.index(word)
        return numbers


def _pictures(values: Tensor, space: spaces.Box) -> Tensor:
    """LeRobot's pictures, floats [batch, c, y, x] in [0, 1], as the space has them."""
    if values.is_floating_point() and space.dtype == "uint8":
        values = (values * 255).round().to(torch.uint8)
    turned = values.permute(0, 2, 3, 1) if values.ndim == 4 else values
    if tuple(values.shape[1:]) != space.shape and tuple(turned.shape[1:]) == space.shape:
        values = turned
    if tuple(values.shape[1:]) != space.shape:
        raise ValueError(
            f"pictures have shape {list(values.shape[1:])}; this policy was trained on {list(space.shape)}"
        )
    return values.contiguous()


def _leaves(tree: Any) -> Any:
    if isinstance(tree, Tensor):
        yield tree
    else:
        for part in tree.values():
            yield from _leaves(part)
