"""Where in the present picture do policy and value depend on what is seen?

Perturbation saliency (George 2021, equations 2.37 to 2.39; Greydanus et al., Visualizing and understanding Atari
agents, 2018). A place (i, j) of the picture is blurred, and the change of the agent's outputs is its saliency:

    I' = I (1 - M_ij) + A(I) M_ij         A: Gaussian blur with sigma 3
    S_actor = 1/2 |pi(I) - pi(I')|^2      pi: the logits
    S_critic = 1/2 (V(I) - V(I'))^2

M_ij is a disc of radius 1 around (i, j), blurred with sigma 5 and divided by its largest value. Every fifth pixel is
tried. Memory, previous action and reward are those of the episode, from pictures that were not blurred.

The squared change of all logits hardly depends on which action was taken. Two other targets are of that action alone:

    action      1/2 (log pi(a | I) - log pi(a | I'))^2
    sarfa       2 K d / (K + d), with d = max(0, pi(a | I) - pi(a | I')) and K = 1 / (1 + KL(rest' || rest)), rest being
                the policy over the other actions: a place matters if it changes this action's probability, and not the
                relations of the others (Puri et al., Explain your move, ICLR 2020, section 3)

Gradient saliency costs one backward pass: |d log pi(a) / dI| and |dV / dI|, largest over channels.

Differs: a stack of frames is blurred in all of them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from gymnasium.spaces import Box, Discrete
from torch import Tensor

from recollect.agents.actor_critic import ActorCritic, ActorCriticOutput
from recollect.agents.contract import ActorInputs
from recollect.agents.image_encoders import accept_float_images
from recollect.agents.spaces import is_image, parts, sides, split_name
from recollect.config import lookup, require
from recollect.interpret.playback import Playback, map_inputs
from recollect.interpret.record import Saliency
from recollect.state import map_state

BLUR, MASK = 3.0, 5.0  # sigmas of the blurred picture and of the mask
STRIDE = 5
ROWS = 96  # blurred pictures that go through the agent at a time
REACH = 4.0  # sigmas at which a Gaussian ends


class Image(NamedTuple):
    """The part of an observation that is a picture."""

    keys: tuple[str, ...]  # its place in nested observations; empty for an observation that is the picture
    axes: tuple[int, ...]  # axes of rows and columns, from the end: (-3, -2) where channels come last
    size: tuple[int, int]

    def rows_first(self, picture: Tensor) -> Tensor:
        """Move rows and columns to the last two axes."""
        return picture.movedim(self.axes, (-2, -1))


def sees_image(agent: ActorCritic) -> bool:
    """Return whether the observation of an agent contains a picture."""
    return any(True for _ in _pictures(agent))


def _pictures(agent: ActorCritic) -> Iterator[tuple[str, Box]]:
    for name, space in parts(agent.observation_space):
        if isinstance(space, Box) and is_image(space):
            yield name, space


def find_image(playback: Playback) -> Image:
    """Return the first picture in the agent's observation.

    Raises:
        ValueError: there is none.
    """
    for name, space in _pictures(playback.agent):
        y, x, c = sides(space.shape)
        first = len(space.shape) == 2 or (space.shape == (c, y, x) and space.shape != (y, x, c))
        axes = (-2, -1) if first else (-3, -2)
        keys = () if space is playback.agent.observation_space else tuple(split_name(name, "/"))
        return Image(keys, axes, (y, x))
    raise ValueError(
        f"observation space {playback.agent.observation_space}: there is no picture in it, and saliency is of pixels"
    )


def gaussian_matrix(size: int, sigma: float) -> Tensor:
    """Return a Gaussian filter along an axis as a matrix ``[size, size]``; beyond its ends the axis is mirrored.

    The weights end at four sigmas, and the mirror repeats the last pixel (d c b a | a b c d | d c b a).
    """
    reach = int(REACH * sigma + 0.5)
    offsets = torch.arange(-reach, reach + 1)
    weights = torch.exp(-0.5 * (offsets.double() / sigma) ** 2)
    weights = weights / weights.sum()
    places = (torch.arange(size)[:, None] + offsets) % (2 * size)
    places = torch.where(places < size, places, 2 * size - 1 - places)
    return torch.zeros(size, size, dtype=torch.float64).scatter_add(1, places, weights.expand(size, -1)).float()


def masks(size: tuple[int, int], stride: int = STRIDE) -> Tensor:
    """Return the mask M of every place that is blurred, ``[m, n, y, x]``."""
    y, x = size
    rows, columns = torch.arange(0, y, stride), torch.arange(0, x, stride)
    down = (torch.arange(y) - rows[:, None]).square()  # m y
    along = (torch.arange(x) - columns[:, None]).square()  # n x
    disc = (down[:, None, :, None] + along[None, :, None] <= 1).float()
    blurred = gaussian_matrix(y, MASK) @ disc @ gaussian_matrix(x, MASK).T
    return blurred / blurred.amax((-1, -2), keepdim=True)


def _blurred(playback: Playback, t: int, state: Any, mask: Tensor, rows: int) -> Iterator[ActorCriticOutput]:
    """Yield the outputs at step t with the picture blurred by each mask ``[r, y, x]``, some masks at a time."""
    image = find_image(playback)
    blurs = [gaussian_matrix(size, BLUR).to(mask.device) for size in image.size]

    def blur(now: Tensor, part: Tensor) -> Tensor:
        """Blur the picture ``[1, 1, ...]`` at r places: ``[r, 1, ...]``."""
        now = image.rows_first(now.float())  # 1 1 (c) y x
        part = part.reshape(len(part), *[1] * (now.ndim - 3), *part.shape[1:])
        mixed = now * (1 - part) + (blurs[0] @ now @ blurs[1].T) * part
        return mixed.movedim((-2, -1), image.axes)

    for part in mask.split(rows):
        number = len(part)
        inputs = _with_image(playback.part(t, t + 1), image, lambda now, part=part: blur(now, part))
        many = map_state(lambda leaf, number=number: leaf.expand(number, *leaf.shape[1:]), state)
        yield playback.step(t, many, _encode(playback, t, inputs))[0]


@torch.no_grad()
def policy_with_blur(playback: Playback, t: int, state: Any, mask: Tensor) -> Tensor:
    """Return the policy's parameters ``[r, p]`` at step t with the picture blurred by each mask ``[r, y, x]``."""
    return torch.cat([output.policy[:, 0] for output in _blurred(playback, t, state, mask, ROWS)])


@torch.no_grad()
def perturbation_saliency(
    playback: Playback,
    actions: np.ndarray,
    *,
    targets: Sequence[str] = ("actor", "critic"),
    of: str = "logits",
    stride: int = STRIDE,
    steps: Sequence[int] | None = None,
    rows: int = ROWS,
) -> Saliency:
    """Measure the saliency of the picture at steps of an episode.

    Args:
        playback: of the episode.
        actions: that were taken, ``[T, ...]``.
        targets: ``actor``, ``critic`` or both.
        of: target of the actor's map: ``logits``, ``action`` or ``sarfa`` (Discrete actions only).
        stride: pixels between blurred places.
        steps: of the episode; None: all.
        rows: blurred pictures at a time.

    Raises:
        ValueError: no picture in the observation, an unknown target, a step that does not exist, or a stride below 1.
    """
    measure = lookup(ACTOR_TARGETS, of, "saliency of")
    require(stride >= 1, "stride", stride, "give at least 1 pixel")
    _require_targets(targets, playback.agent.action_space, of)
    wanted = _steps(playback, steps)
    mask = masks(find_image(playback).size, stride).to(playback.is_first.device)
    maps: dict[str, list[np.ndarray]] = {target: [] for target in targets}
    for t, state in playback.states(wanted):
        plain, _ = playback.step(t, state)
        action = torch.as_tensor(actions[t : t + 1], device=mask.device)
        changes: dict[str, list[Tensor]] = {target: [] for target in targets}
        for other in _blurred(playback, t, state, mask.flatten(0, 1), rows):
            if "actor" in changes:
                changes["actor"].append(measure(playback, plain, other, action))
            if "critic" in changes:
                changes["critic"].append(0.5 * (plain.value - other.value)[:, 0].square())
        for target, values in changes.items():
            maps[target].append(torch.cat(values).unflatten(0, mask.shape[:2]).float().cpu().numpy())
    return _saliency(wanted, maps, target=of, stride=stride)


def _saliency(steps: Sequence[int], maps: Mapping[str, list[np.ndarray]], **how: Any) -> Saliency:
    actor, critic = (np.stack(maps[target]) if target in maps else None for target in ("actor", "critic"))
    return Saliency(steps=np.array(steps, np.int32), actor=actor, critic=critic, **how)


def gradient_saliency(
    playback: Playback,
    actions: np.ndarray,
    *,
    targets: Sequence[str] = ("actor", "critic"),
    steps: Sequence[int] | None = None,
) -> Saliency:
    """Return |d log pi(a_t) / dI_t| and |dV_t / dI_t| with the memory held, in full resolution; arguments as above."""
    _require_targets(targets, playback.agent.action_space, "action")
    agent, wanted, image = playback.agent, _steps(playback, steps), find_image(playback)
    maps: dict[str, list[np.ndarray]] = {target: [] for target in targets}
    for t, state in playback.states(wanted):
        pictures: list[Tensor] = []

        def watch(now: Tensor, to: list[Tensor] = pictures) -> Tensor:
            to.append(now.detach().float().requires_grad_())
            return to[0]

        inputs = _with_image(playback.part(t, t + 1), image, watch)
        with torch.enable_grad():
            encoded = _encode(playback, t, inputs)
            outputs, _ = agent.core(encoded, state, playback.is_first[:, t : t + 1])
            output = agent.decide(outputs, encoded, inputs)
            action = torch.as_tensor(actions[t : t + 1], device=output.value.device)
            scores = {"actor": agent.distribution(output.policy[:, 0]).log_prob(action), "critic": output.value}
            for target in targets:
                (slope,) = torch.autograd.grad(scores[target].sum(), pictures[0], retain_graph=True)
                by_channel = image.rows_first(slope.abs()[0, 0]).reshape(-1, *image.size)
                maps[target].append(by_channel.amax(0).cpu().numpy())
    return _saliency(wanted, maps, method="gradient", target="action", stride=1)


def upsample(maps: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Enlarge maps ``[..., m, n]`` to ``[..., y, x]`` pixels, bilinear."""
    flat = torch.as_tensor(maps).reshape(-1, 1, *maps.shape[-2:]).float()
    grown = F.interpolate(flat, size=size, mode="bilinear", align_corners=False)
    return grown.reshape(*maps.shape[:-2], *size).numpy()


def _of_logits(playback: Playback, plain: ActorCriticOutput, other: ActorCriticOutput, _: Tensor) -> Tensor:
    return 0.5 * (plain.policy - other.policy)[:, 0].square().sum(-1)


def _of_action(playback: Playback, plain: ActorCriticOutput, other: ActorCriticOutput, action: Tensor) -> Tensor:
    before, after = _log_probs(playback, plain, action), _log_probs(playback, other, action)
    return 0.5 * (before - after).square()


def _log_probs(playback: Playback, output: ActorCriticOutput, action: Tensor) -> Tensor:
    policy = output.policy[:, 0]
    return playback.agent.distribution(policy).log_prob(action.expand(len(policy), *action.shape[1:]))


def _of_sarfa(playback: Playback, plain: ActorCriticOutput, other: ActorCriticOutput, action: Tensor) -> Tensor:
    space = playback.agent.action_space
    assert isinstance(space, Discrete)
    index = int(action[0]) - int(space.start)
    return sarfa(plain.policy[:, 0], other.policy[:, 0], index)


def sarfa(plain: Tensor, other: Tensor, action: int) -> Tensor:
    """Return 2 K d / (K + d) of logits ``[1, a]`` and ``[r, a]``."""
    drop = (plain.softmax(-1) - other.softmax(-1))[:, action].clamp(min=0.0)
    rest = [index for index in range(plain.shape[-1]) if index != action]
    before, after = (logits[:, rest].log_softmax(-1) for logits in (plain, other))
    near = 1 / (1 + (after.exp() * (after - before)).sum(-1))
    return 2 * near * drop / (near + drop)


ACTOR_TARGETS: dict[str, Callable[[Playback, ActorCriticOutput, ActorCriticOutput, Tensor], Tensor]] = {
    "logits": _of_logits,
    "action": _of_action,
    "sarfa": _of_sarfa,
}


def _require_targets(targets: Sequence[str], space: Any, of: str) -> None:
    known = {"actor", "critic"}
    require(bool(targets) and set(targets) <= known, "targets", tuple(targets), "choose actor, critic or both")
    needs = of != "sarfa" or (isinstance(space, Discrete) and space.n > 2)
    require(needs, "of", of, "SARFA compares other actions: it needs Discrete actions, at least three")


def _steps(playback: Playback, steps: Sequence[int] | None) -> list[int]:
    wanted = sorted(set(range(playback.num_steps) if steps is None else steps))
    inside = not wanted or (wanted[0] >= 0 and wanted[-1] < playback.num_steps)
    require(bool(wanted) and inside, "steps", tuple(wanted[:5]), f"give steps in 0..{playback.num_steps - 1}")
    return wanted


def _with_image(inputs: ActorInputs, image: Image, change: Callable[[Tensor], Tensor]) -> ActorInputs:
    """Replace the picture in the inputs, and repeat the other inputs for as many rows as the new picture has."""
    rows = 1

    def changed(part: Any, keys: tuple[str, ...]) -> Any:
        nonlocal rows
        if isinstance(part, dict):
            return part | {keys[0]: changed(part[keys[0]], keys[1:])}
        other = change(part)
        rows = len(other)
        return other

    inputs = inputs._replace(observation=changed(inputs.observation, image.keys))
    return map_inputs(lambda part: part.expand(rows, *part.shape[1:]), inputs)


def _encode(playback: Playback, t: int, inputs: ActorInputs) -> Tensor:
    with accept_float_images(playback.agent):
        return playback.agent.encode(inputs, playback.is_first[:, t : t + 1].expand(len(inputs.reward), 1))
