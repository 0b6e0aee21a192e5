import math

import numpy as np
import pytest
import torch
from gymnasium import spaces
from scipy import stats

from recollect.agents.policies import policy_for

SPACES = {
    "discrete": spaces.Discrete(5),
    "discrete from 3": spaces.Discrete(4, start=3),
    "multi-discrete": spaces.MultiDiscrete([3, 3]),
    "uneven": spaces.MultiDiscrete([2, 5, 3], start=[0, 1, -2]),
    "matrix": spaces.MultiDiscrete([[2, 3], [4, 2]]),
    "multi-binary": spaces.MultiBinary((2, 2)),
    "box": spaces.Box(np.array([-2.0, 0.0, -np.inf], np.float32), np.array([2.0, 10.0, np.inf], np.float32)),
    "half box": spaces.Box(np.array([0.0], np.float32), np.array([np.inf], np.float32)),
    "scalar box": spaces.Box(-1.0, 1.0, ()),
    "free box": spaces.Box(-np.inf, np.inf, (2, 2)),
}
DISCRETE = ["discrete", "discrete from 3", "multi-discrete", "uneven", "matrix", "multi-binary"]


def made(key, *lead, scale=1.0):
    policy = policy_for(SPACES[key]).double()
    parameters = policy.complete(scale * torch.randn(*lead, policy.num_outputs, dtype=torch.float64))
    return policy, parameters.detach().requires_grad_()


def all_actions(space):
    """Every element of a discrete space, and its place in the parameters, entry by entry."""
    if isinstance(space, spaces.Discrete):
        return [(torch.tensor(int(space.start) + i), [i]) for i in range(int(space.n))]
    binary = isinstance(space, spaces.MultiBinary)
    sizes = np.full(space.shape, 2) if binary else space.nvec
    start = np.zeros(space.shape, int) if binary else space.start
    first = np.concatenate(([0], sizes.reshape(-1).cumsum()[:-1])).reshape(space.shape)
    return [
        (
            torch.from_numpy(np.array(index) + start.reshape(-1)).reshape(space.shape),
            (np.array(index) + first.reshape(-1)).tolist(),
        )
        for index in np.ndindex(*sizes.reshape(-1).tolist())
    ]


@pytest.mark.parametrize("key", SPACES)
@pytest.mark.parametrize("lead", [(6,), (2, 3)])
def test_shapes_and_samples_inside_the_space(key, lead):
    space = SPACES[key]
    policy, parameters = made(key, *lead, scale=3.0)
    assert parameters.shape == (*lead, policy.num_parameters)
    distribution = policy.distribution(parameters)
    for actions in (distribution.sample(), distribution.mode()):
        assert actions.shape == (*lead, *space.shape)
        for action in actions.reshape(-1, *space.shape).detach().numpy():
            assert space.contains(np.asarray(action, space.dtype) if isinstance(space, spaces.Box) else action)
    assert distribution.log_prob(actions).shape == distribution.entropy().shape == lead
    assert policy.encode(actions).shape == (*lead, policy.encoding_dim)


@pytest.mark.parametrize("key", DISCRETE)
def test_log_prob_and_entropy_against_enumeration(key):
    policy, parameters = made(key)
    distribution = policy.distribution(parameters)
    sizes = [int(SPACES[key].n)] if key.startswith("discrete") else None
    if sizes is None:
        binary = key == "multi-binary"
        sizes = [2] * 4 if binary else SPACES[key].nvec.reshape(-1).tolist()
    log_probs = torch.cat([part.log_softmax(-1) for part in parameters.split(sizes)])
    entropy, total, best = 0.0, 0.0, (-math.inf, None)
    for action, places in all_actions(SPACES[key]):
        expected = log_probs[places].sum()
        torch.testing.assert_close(distribution.log_prob(action), expected)
        assert policy.encode(action).nonzero()[:, 0].tolist() == places
        total += expected.exp().item()
        entropy -= (expected.exp() * expected).item()
        best = max(best, (expected.item(), action.tolist()), key=lambda pair: pair[0])
    assert math.isclose(total, 1.0)
    torch.testing.assert_close(distribution.entropy().item(), entropy)
    assert distribution.mode().tolist() == best[1]


@pytest.mark.parametrize("key", DISCRETE)
def test_samples_have_the_probabilities(key):
    policy, parameters = made(key)
    rows = 40_000
    sampled = policy.distribution(parameters.detach().expand(rows, -1)).sample()
    distribution = policy.distribution(parameters.detach())
    for action, _ in all_actions(SPACES[key]):
        p = distribution.log_prob(action).exp().item()
        share = (sampled == action).reshape(rows, -1).all(1).double().mean().item()
        assert abs(share - p) < 5 * math.sqrt(p * (1 - p) / rows)


@pytest.mark.parametrize("key", ["discrete", "uneven", "box"])
def test_a_generator_decides_the_sample(key):
    policy, parameters = made(key, 50)
    distribution = policy.distribution(parameters)
    one, two, three = (distribution.sample(torch.Generator().manual_seed(seed)) for seed in (1, 1, 2))
    assert torch.equal(one, two)
    assert not torch.equal(one, three)


def test_gaussian_between_and_on_the_bounds():
    """Inside: the density in the space's units. On a bound: the logarithm of the mass beyond it."""
    policy, parameters = made("box")
    with torch.no_grad():
        parameters[3:] = torch.tensor([-0.3, 0.1, 0.4])
    mean, sigma = parameters.detach()[:3].numpy(), parameters.detach()[3:].exp().numpy()
    center, scale = np.array([0.0, 5.0, 0.0]), np.array([2.0, 5.0, 1.0])
    normal = stats.norm(center + scale * mean, scale * sigma)
    distribution = policy.distribution(parameters)
    inside = np.array([0.7, 9.0, -3.0])
    got = distribution.log_prob(torch.from_numpy(inside))
    np.testing.assert_allclose(got.item(), normal.logpdf(inside).sum(), rtol=1e-6)
    edge = np.array([-2.0, 10.0, 1.5])
    expected = normal.logcdf(edge)[0] + normal.logsf(edge)[1] + normal.logpdf(edge)[2]
    np.testing.assert_allclose(distribution.log_prob(torch.from_numpy(edge)).item(), expected, rtol=1e-6)
    np.testing.assert_allclose(distribution.entropy().item(), normal.entropy().sum(), rtol=1e-6)


def test_an_entry_with_a_single_value_has_probability_one():
    bounds = np.array([-1.0, -5.0, 2.0], np.float32), np.array([1.0, -5.0, 2.0], np.float32)
    with_fixed, alone = policy_for(spaces.Box(*bounds)), policy_for(spaces.Box(-1, 1, (1,)))
    parameters = torch.randn(6, 6).requires_grad_()
    distribution = with_fixed.distribution(parameters)
    actions = distribution.sample()
    assert torch.equal(actions[:, 1:], torch.tensor([[-5.0, 2.0]]).expand(6, 2))
    torch.testing.assert_close(
        distribution.log_prob(actions), alone.distribution(parameters[:, ::3]).log_prob(actions[:, :1])
    )
    distribution.log_prob(actions).sum().backward()
    assert not parameters.grad[:, [1, 2, 4, 5]].any()


def test_gaussian_samples_have_their_moments_and_the_mass_on_the_bounds():
    policy, parameters = made("box")
    rows = 40_000
    sampled = policy.distribution(parameters.detach().expand(rows, -1)).sample()
    mean, log_sigma = parameters.detach().chunk(2)
    sigma = log_sigma.exp()
    assert abs(sampled[:, 2].mean() - mean[2]) < 5 * sigma[2] / math.sqrt(rows)
    assert abs(sampled[:, 2].std() / sigma[2] - 1) < 0.03
    above = (sampled[:, 0] == 2).double().mean().item()
    expected = stats.norm.sf(1, mean[0].item(), sigma[0].item())
    assert abs(above - expected) < 5 * math.sqrt(expected * (1 - expected) / rows) + 1e-9


@pytest.mark.parametrize("key", ["discrete", "uneven", "box", "half box", "free box"])
def test_gradients_of_log_prob_and_entropy(key):
    policy, parameters = made(key, 4)
    actions = policy.distribution(parameters).sample()
    if key == "box":
        actions[0, 0], actions[1, 1] = -2.0, 10.0
    torch.autograd.gradcheck(lambda p: policy.distribution(p).log_prob(actions), parameters)
    torch.autograd.gradcheck(lambda p: policy.distribution(p).entropy(), parameters)


def test_gradients_stay_finite_far_outside_the_bounds():
    policy = policy_for(spaces.Box(-1.0, 1.0, (1,)))
    parameters = torch.tensor([[-40.0, -2.0], [40.0, -2.0], [0.0, -2.0]], requires_grad=True)
    log_prob = policy.distribution(parameters).log_prob(torch.tensor([[1.0], [1.0], [-1.0]]))
    log_prob.sum().backward()
    assert log_prob.isfinite().all()
    assert parameters.grad.isfinite().all()


def test_the_mean_over_samples_of_the_score_is_zero():
    """What makes the policy gradient unbiased: clipping must not spoil it."""
    policy = policy_for(spaces.Box(-1.0, 1.0, (1,))).double()
    parameters = torch.tensor([[0.6, 0.0]], dtype=torch.float64).expand(200_000, 2).clone().requires_grad_()
    distribution = policy.distribution(parameters)
    distribution.log_prob(distribution.sample()).sum().backward()
    scores = parameters.grad
    assert (scores.mean(0).abs() < 5 * scores.std(0) / math.sqrt(len(scores))).all()


def test_the_first_gaussian_covers_a_bounded_range_in_its_units():
    policy = policy_for(spaces.Box(0.0, 1000.0, (1,)))
    parameters = policy.complete(torch.zeros(20_000, 1))
    sampled = policy.distribution(parameters).sample()
    assert 450 < sampled.mean() < 550
    assert 200 < sampled.std() < 350
    assert torch.equal(policy.encode(torch.tensor([[0.0], [500.0], [1000.0]])), torch.tensor([[-1.0], [0.0], [1.0]]))


def test_the_largest_numbers_as_bounds_are_as_none():
    largest = float(np.finfo(np.float32).max)
    given, none = (policy_for(spaces.Box(-bound, bound, (2,), np.float32)) for bound in (largest, np.inf))
    outputs = torch.randn(50, 2, generator=torch.Generator().manual_seed(0))
    ours, theirs = (policy.distribution(policy.complete(outputs)) for policy in (given, none))
    actions = ours.sample(torch.Generator().manual_seed(1))
    assert torch.equal(actions, theirs.sample(torch.Generator().manual_seed(1)))
    assert torch.equal(ours.log_prob(actions), theirs.log_prob(actions))
    assert torch.equal(ours.entropy(), theirs.entropy())


def test_float32_from_bfloat16_and_gradient_of_the_learned_sigma():
    policy = policy_for(SPACES["box"])
    parameters = policy.complete(torch.randn(7, 3).bfloat16())
    distribution = policy.distribution(parameters)
    log_prob = distribution.log_prob(distribution.sample())
    assert log_prob.dtype == distribution.entropy().dtype == torch.float32
    log_prob.sum().backward()
    assert policy.log_std.grad.any()
    assert policy_for(SPACES["discrete"]).distribution(torch.zeros(2, 5).bfloat16()).entropy().dtype == torch.float32


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (spaces.Dict({"a": spaces.Discrete(2)}), "flatten its parts"),
        (spaces.Tuple([spaces.Discrete(2)]), "flatten its parts"),
        (spaces.Text(5), "no policy is defined over a Text"),
        (spaces.Box(0, 5, (2,), np.int64), "describe integer actions as MultiDiscrete"),
        (spaces.Box(0, 5, (0,)), "nothing to choose"),
        (spaces.Discrete(2**40), "has 1,099,511,627,776 choices, .*give at most 16,777,216"),
        (spaces.MultiDiscrete([2**40, 2]), "choices, .*give a number in a Box"),
    ],
)
def test_other_spaces_are_refused_with_a_remedy(space, message):
    with pytest.raises(ValueError, match=message):
        policy_for(space)


def test_bounds_stay_exact_in_a_model_of_fewer_digits():
    space = spaces.Box(np.float32(-0.3), np.float32(0.3), (2,))
    policy = policy_for(space).to(torch.bfloat16)
    for mean in (-9.0, 9.0):
        parameters = policy.complete(torch.full((1, 2), mean, dtype=torch.bfloat16))
        assert space.contains(policy.distribution(parameters).mode()[0].detach().numpy())
    assert policy.double().low.dtype == torch.float64  # more digits are kept
    assert policy.log_std.dtype == torch.float64


def test_several_choices_in_half_precision():
    policy = policy_for(spaces.MultiDiscrete([2, 3]))
    entropy = policy.distribution(torch.zeros(1, 5, dtype=torch.float16)).entropy()
    torch.testing.assert_close(entropy, torch.tensor([math.log(6)]))
