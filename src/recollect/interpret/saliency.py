"""Where in the present picture do policy and value depend on what is seen?

Perturbation saliency (George 2021, equations 2.37 to 2.39; Greydanus et al., Visualizing and understanding Atari
agents, 2018). A place (i, j) of the picture is blurred, and the change of what the agent says is its saliency:

    I' = I (1 - M_ij) + A(I) M_ij         A: Gaussian blur with sigma 3
    S_actor = 1/2 |pi(I) - pi(I')|^2      pi: the logits
    S_critic = 1/2 (V(I) - V(I'))^2

M_ij is a disc of radius 1 around (i, j), blurred with sigma 5 and divided by its largest value. Every fifth pixel is
tried. The memory is that of the episode, from pictures that were not blurred; so are the previous action and reward.

The squared change of all logits hardly depends on which action was taken. Two other targets ask for that action alone:

    action      1/2 (log pi(a | I) - log pi(a | I'))^2
    sarfa       2 K d / (K + d), with d = max(0, pi(a | I) - pi(a | I')) and K = 1 / (1 + KL(rest' || rest)), rest being
                the policy over the other actions: a place matters if it changes this action's probability, and not the
                relations of the others (Puri et al., Explain your move, ICLR 2020, section 3)

Gradient saliency is the cheap companion: one backward pass, |d log pi(a) / dI| and |dV / dI|, largest over channels.

Differs: a stack of frames is blurred in all of them.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from gymnasium.spaces import Box, Discrete
from torch import Tensor

from recollect.agents.actor_critic import ActorCritic, ActorCriticOutput
from recollect.agents.contract import ActorInputs
from recollect.agents.image_encoders import accept_float_images
from recollect.agents.spaces import is_image, parts, sides
from recollect.config import lookup, require
from recollect.interpret.playback import Playback
from recollect.interpret.record import Saliency
from recollect.state import map_state

BLUR, MASK = 3.0, 5.0
"""Sigmas of the blurred picture and of the mask."""
STRIDE = 5
ROWS = 96
"""Blurred pictures that go through the agent at a time."""
REACH = 4.0
"""Sigmas at which a Gaussian ends."""


class Image(NamedTuple):
    """The part of an observation that is a picture."""

    keys: tuple[str, ...]
    """Where it stands in nested observations; empty for one that is nothing else."""
    axes: tuple[int, ...]
    """Which axes of it are rows and columns, from the end: (-3, -2) where channels come last."""
    size: tuple[int, int]


def sees_image(agent: ActorCritic) -> bool:
    """Whether there is a picture in what the agent sees."""
    return any(True for _ in _pictures(agent))


def _pictures(agent: ActorCritic) -> Iterator[tuple[str, Box]]:
    for name, space in parts(agent.observation_space):
        if isinstance(space, Box) and is_image(space):
            yield name, space


def find_image(playback: Playback) -> Image:
    """The first picture that the agent sees.

    Raises:
        ValueError: it sees none.
    """
    for name, space in _pictures(playback.agent):
        y, x, c = sides(space.shape)
        first = len(space.shape) == 2 or (space.shape == (c, y, x) and space.shape != (y, x, c))
        axes = (-2, -1) if first else (-3, -2)
        return Image(() if name == "observation" else tuple(name.split("/")), axes, (y, x))
    raise ValueError(
        f"observation space {playback.agent.observation_space}: there is no picture in it, and saliency is of pixels"
    )


def gaussian_matrix(size: int, sigma: float) -> Tensor:
    """A Gaussian filter along an axis as a matrix ``[size, size]``; the axis goes on in its mirror image.

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
    """M for every place that is tried, ``[m, n, y, x]``."""
    y, x = size
    rows, columns = torch.arange(0, y, stride), torch.arange(0, x, stride)
    down = (torch.arange(y) - rows[:, None]).square()  # m y
    along = (torch.arange(x) - columns[:, None]).square()  # n x
    disc = (down[:, None, :, None] + along[None, :, None] <= 1).float()
    blurred = gaussian_matrix(y, MASK) @ disc @ gaussian_matrix(x, MASK).T
    return blurred / blurred.amax((-1, -2), keepdim=True)


@torch.no_grad()
def policy_with_blur(playback: Playback, t: int, state: Any, mask: Tensor) -> Tensor:
    """The policy's parameters ``[r, p]`` at step t where the picture is blurred by each mask ``[r, y, x]``."""
    image = find_image(playback)
    blurs = [gaussian_matrix(size, BLUR).to(mask.device) for size in image.size]
    found = []
    for part in mask.split(ROWS):
        inputs = _with_image(playback.part(t, t + 1), image, lambda now, part=part: _mixed(now, part, image, blurs))
        found.append(playback.step(t, _spread(state, len(part)), _encode(playback, t, inputs))[0].policy[:, 0])
    return torch.cat(found)


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
    """Saliency of the picture at steps of an episode.

    Args:
        playback: of the episode.
        actions: that were taken, ``[T, ...]``.
        targets: ``actor``, ``critic`` or both.
        of: what the actor's map is of: ``logits``, ``action`` or ``sarfa`` (Discrete actions only).
        stride: pixels between places that are tried.
        steps: of the episode; None: all.
        rows: blurred pictures at a time.

    Raises:
        ValueError: nothing that the agent sees is a picture, an unknown target, or a step that is not there.
    """
    measure = lookup(ACTOR_TARGETS, of, "saliency of")
    _require_targets(targets, playback.agent.action_space, of)
    wanted = _steps(playback, steps)
    image = find_image(playback)
    mask = masks(image.size, stride).to(playback.is_first.device)
    blurs = [gaussian_matrix(size, BLUR).to(mask.device) for size in image.size]
    found: dict[str, list[np.ndarray]] = {target: [] for target in targets}
    for t, state in _states(playback, wanted):
        plain, _ = playback.step(t, state)
        action = torch.as_tensor(actions[t : t + 1], device=mask.device)
        changes: dict[str, list[Tensor]] = {target: [] for target in targets}
        for part in mask.flatten(0, 1).split(rows):
            inputs = _with_image(playback.part(t, t + 1), image, lambda now, part=part: _mixed(now, part, image, blurs))
            other, _ = playback.step(t, _spread(state, len(part)), _encode(playback, t, inputs))
            if "actor" in changes:
                changes["actor"].append(measure(playback, plain, other, action))
            if "critic" in changes:
                changes["critic"].append(0.5 * (plain.value - other.value)[:, 0].square())
        for target, values in changes.items():
            found[target].append(torch.cat(values).unflatten(0, mask.shape[:2]).float().cpu().numpy())
    maps = {target: np.stack(values) for target, values in found.items()}
    return Saliency(
        steps=np.array(wanted, np.int32),
        actor=maps.get("actor"),
        critic=maps.get("critic"),
        target=of,
        stride=stride,
    )


def gradient_saliency(
    playback: Playback,
    actions: np.ndarray,
    *,
    targets: Sequence[str] = ("actor", "critic"),
    steps: Sequence[int] | None = None,
) -> Saliency:
    """|d log pi(a_t) / dI_t| and |dV_t / dI_t| with the memory held, in full resolution; arguments as above."""
    _require_targets(targets, playback.agent.action_space, "action")
    wanted, image = _steps(playback, steps), find_image(playback)
    found: dict[str, list[np.ndarray]] = {target: [] for target in targets}
    for t, state in _states(playback, wanted):
        seen: list[Tensor] = []

        def watch(now: Tensor, seen: list[Tensor] = seen) -> Tensor:
            seen.append(now.detach().float().requires_grad_())
            return seen[0]

        inputs = _with_image(playback.part(t, t + 1), image, watch)
        with torch.enable_grad():
            output = _differentiable(playback, t, state, inputs)
            action = torch.as_tensor(actions[t : t + 1], device=output.value.device)
            says = {"actor": playback.agent.distribution(output.policy[:, 0]).log_prob(action), "critic": output.value}
            for target in targets:
                (slope,) = torch.autograd.grad(says[target].sum(), seen[0], retain_graph=True)
                found[target].append(_largest(slope.abs()[0, 0], image))
    maps = {target: np.stack(values) for target, values in found.items()}
    return Saliency(
        steps=np.array(wanted, np.int32),
        actor=maps.get("actor"),
        critic=maps.get("critic"),
        method="gradient",
        target="action",
        stride=1,
    )


def upsample(maps: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Maps ``[..., m, n]`` to ``[..., y, x]`` pixels, bilinear."""
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
    """2 K d / (K + d) of logits ``[1, a]`` and ``[r, a]``."""
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


def _states(playback: Playback, wanted: Sequence[int]) -> Iterator[tuple[int, Any]]:
    asked, last = set(wanted), wanted[-1]
    for t, state in playback.states():
        if t in asked:
            yield t, state
        if t == last:
            return


def _spread(state: Any, rows: int) -> Any:
    return map_state(lambda leaf: leaf.expand(rows, *leaf.shape[1:]), state)


def _mixed(now: Tensor, mask: Tensor, image: Image, blurs: Sequence[Tensor]) -> Tensor:
    """The picture ``[1, 1, ...]`` blurred at r places, ``[r, 1, ...]``; mask ``[r, y, x]``."""
    now = now.float().movedim(image.axes, (-2, -1))  # 1 1 (c) y x
    blurred = blurs[0] @ now @ blurs[1].T
    mask = mask.reshape(len(mask), *[1] * (now.ndim - 3), *mask.shape[1:])
    return (now * (1 - mask) + blurred * mask).movedim((-2, -1), image.axes)


def _with_image(inputs: ActorInputs, image: Image, change: Callable[[Tensor], Tensor]) -> ActorInputs:
    """The inputs with another picture, and as many rows as it has."""
    rows: list[int] = []

    def changed(part: Any, keys: tuple[str, ...]) -> Any:
        if isinstance(part, dict):
            return part | {keys[0]: changed(part[keys[0]], keys[1:])}
        other = change(part)
        rows.append(len(other))
        return other

    observation = changed(inputs.observation, image.keys)
    parts = inputs._replace(observation=observation)
    return ActorInputs._make(None if part is None else _repeated(part, rows[0]) for part in parts)


def _repeated(part: Any, rows: int) -> Any:
    if isinstance(part, dict):
        return {name: _repeated(child, rows) for name, child in part.items()}
    return part.expand(rows, *part.shape[1:])


def _encode(playback: Playback, t: int, inputs: ActorInputs) -> Tensor:
    rows = len(inputs.reward)
    with accept_float_images(playback.agent):
        return playback.agent.encode(inputs, playback.is_first[:, t : t + 1].expand(rows, 1))


def _differentiable(playback: Playback, t: int, state: Any, inputs: ActorInputs) -> ActorCriticOutput:
    agent, first = playback.agent, playback.is_first[:, t : t + 1]
    with accept_float_images(agent):
        encoded = agent.encode(inputs, first)
    outputs, _ = agent.core(encoded, state, first)
    return agent.decide(outputs, encoded, inputs)


def _largest(slope: Tensor, image: Image) -> np.ndarray:
    """The largest over channels, ``[y, x]``."""
    moved = slope.movedim(image.axes, (-2, -1))
    return moved.reshape(-1, *image.size).amax(0).cpu().numpy()
