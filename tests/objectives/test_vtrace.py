import json
from pathlib import Path

import numpy as np
import pytest
import torch

from recollect.objectives.vtrace import vtrace

GOLDEN = np.load(Path(__file__).parents[1] / "golden" / "vtrace.npz")
CASES = json.loads(str(GOLDEN["meta_json"]))["cases"]


def literal(
    log_ratio, reward, discount, value, bootstrap, valid, rho_clip=1.0, c_clip=1.0, pg_rho_clip=1.0, lambda_=1.0
):
    """Document 004, equations 2.7 (the sum, not the recursion) and 2.11, number by number."""
    b, t = reward.shape
    targets, advantages = torch.zeros(b, t), torch.zeros(b, t)
    for row in range(b):
        V = [*value[row].tolist(), bootstrap[row].item()]
        r, gamma = reward[row].tolist(), discount[row].tolist()
        ratio = log_ratio[row].exp().tolist()
        v = [*V]
        for k in range(t):
            if not valid[row, k]:
                continue
            product = 1.0
            for i in range(k, t):
                if not valid[row, i]:
                    break
                delta = min(rho_clip, ratio[i]) * (r[i] + gamma[i] * V[i + 1] - V[i])
                v[k] += product * delta
                product *= gamma[i] * lambda_ * min(c_clip, ratio[i])
        for k in range(t):
            if valid[row, k]:
                targets[row, k] = v[k]
                advantages[row, k] = min(pg_rho_clip, ratio[k]) * (r[k] + gamma[k] * v[k + 1] - V[k])
    return targets, advantages


def problem(b=4, t=13, seed=0):
    generator = torch.Generator().manual_seed(seed)
    log_ratio, reward, value = (torch.randn(b, t, generator=generator, dtype=torch.float64) for _ in range(3))
    ended = torch.rand(b, t, generator=generator) < 0.15
    valid = torch.rand(b, t, generator=generator) > 0.15
    discount = torch.where(ended, 0.0, 0.97).double()
    bootstrap = torch.randn(b, generator=generator, dtype=torch.float64)
    return log_ratio, reward, discount, value, bootstrap, valid


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_golden_numbers(case):
    def get(name):
        return torch.from_numpy(GOLDEN[f"{case['name']}/{name}"])

    if case["function"] == "from_logits":
        index = get("in/actions")[..., None]
        target, behaviour = (
            get(f"in/{name}_policy_logits").log_softmax(-1).gather(-1, index)[..., 0] for name in ("target", "behavior")
        )
        log_ratio = target - behaviour
        torch.testing.assert_close(log_ratio, get("out/log_rhos"), atol=1e-5, rtol=1e-5)
    else:
        log_ratio = get("in/log_rhos")
    inputs = (tensor.t() for tensor in (log_ratio, get("in/rewards"), get("in/discounts"), get("in/values")))
    clips = {"rho_clip": case["clip_rho_threshold"], "pg_rho_clip": case["clip_pg_rho_threshold"]}
    targets, advantages = vtrace(*inputs, get("in/bootstrap_value"), **clips)
    torch.testing.assert_close(targets, get("out/vs").t(), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(advantages, get("out/pg_advantages").t(), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("t", [1, 2, 3, 7, 8, 13, 33])
@pytest.mark.parametrize("lambda_", [1.0, 0.9, 0.0])
def test_equals_the_sum_of_the_paper(t, lambda_):
    *inputs, valid = problem(t=t, seed=t)
    clips = {"rho_clip": 1.3, "c_clip": 0.8, "pg_rho_clip": 1.1, "lambda_": lambda_}
    targets, advantages = vtrace(*inputs, valid=valid, **clips)
    expected = literal(*inputs, valid, **clips)
    torch.testing.assert_close(targets.float(), expected[0])
    torch.testing.assert_close(advantages.float(), expected[1])


def test_on_policy_it_is_the_n_step_bellman_target():
    _, reward, _, value, bootstrap, _ = problem()
    gamma, t = 0.9, reward.shape[1]
    targets, _ = vtrace(torch.zeros_like(reward), reward, torch.full_like(reward, gamma), value, bootstrap)
    for k in range(t):
        powers = gamma ** torch.arange(t - k, dtype=torch.float64)
        expected = (reward[:, k:] * powers).sum(1) + gamma ** (t - k) * bootstrap
        torch.testing.assert_close(targets[:, k], expected)


def test_no_advantage_where_the_value_solves_the_bellman_equation():
    log_ratio, reward, discount, _, bootstrap, valid = problem()
    value, following = torch.empty_like(reward), bootstrap
    for k in reversed(range(reward.shape[1])):
        value[:, k] = torch.where(valid[:, k], reward[:, k] + discount[:, k] * following, 0.3)
        following = value[:, k]
    targets, advantages = vtrace(log_ratio, reward, discount, value, bootstrap, valid=valid)
    torch.testing.assert_close(targets, torch.where(valid, value, 0.0))
    torch.testing.assert_close(advantages, torch.zeros_like(advantages))


def test_a_true_end_cuts_bootstrap_and_trace():
    log_ratio, reward, discount, value, bootstrap, _ = problem(t=8)
    discount[:] = 0.9
    discount[:, 3] = 0.0
    whole = vtrace(log_ratio, reward, discount, value, bootstrap)
    nothing = torch.zeros_like(bootstrap)
    first = vtrace(log_ratio[:, :4], reward[:, :4], discount[:, :4], value[:, :4], nothing)
    torch.testing.assert_close(whole.targets[:, :4], first.targets)
    torch.testing.assert_close(whole.advantages[:, :4], first.advantages)


def test_a_time_limit_bootstraps_from_the_final_observation():
    """Row 4 shows the final observation of a cut episode: its value counts, its action does not."""
    log_ratio, reward, discount, value, bootstrap, valid = problem(t=8)
    discount[:], valid[:] = 0.9, True
    valid[:, 4] = False
    whole = vtrace(log_ratio, reward, discount, value, bootstrap, valid=valid)
    first = vtrace(log_ratio[:, :4], reward[:, :4], discount[:, :4], value[:, :4], value[:, 4])
    later = vtrace(log_ratio[:, 5:], reward[:, 5:], discount[:, 5:], value[:, 5:], bootstrap)
    for name in ("targets", "advantages"):
        got = getattr(whole, name)
        torch.testing.assert_close(got[:, :4], getattr(first, name))
        torch.testing.assert_close(got[:, 5:], getattr(later, name))
        assert not got[:, 4].any()


def test_nan_where_nothing_is_read_reaches_nothing():
    log_ratio, reward, discount, value, bootstrap, valid = problem(t=9)
    discount[:], valid[:] = 0.9, True
    valid[:, 4] = False
    discount[:, 3] = 0.0  # the episode ended for good: not even the value of its final observation is read
    clean = vtrace(log_ratio, reward, discount, value, bootstrap, valid=valid)
    for tensor in (log_ratio, reward, discount, value):
        tensor[:, 4] = torch.nan
    dirty = vtrace(log_ratio, reward, discount, value, bootstrap, valid=valid)
    assert torch.equal(dirty.targets, clean.targets)
    assert torch.equal(dirty.advantages, clean.advantages)


def test_clips_bound_enormous_ratios_and_none_does_not():
    _, reward, discount, value, bootstrap, _ = problem()
    huge = torch.full_like(reward, 200.0)
    bounded = vtrace(huge, reward, discount, value, bootstrap)
    on_policy = vtrace(torch.zeros_like(huge), reward, discount, value, bootstrap)
    torch.testing.assert_close(bounded, on_policy)
    double = vtrace(torch.full_like(reward, 2.0).log(), reward, discount, value, bootstrap, pg_rho_clip=None)
    torch.testing.assert_close(double.advantages, 2 * on_policy.advantages)


def test_constants_in_float32_or_better():
    log_ratio, reward, discount, value, bootstrap, _ = problem()
    narrow = [tensor.bfloat16() for tensor in (log_ratio, reward, discount, value, bootstrap)]
    targets, advantages = vtrace(narrow[0].requires_grad_(), *narrow[1:])
    assert targets.dtype == advantages.dtype == torch.float32
    assert not targets.requires_grad
    expected, _ = vtrace(*(tensor.float() for tensor in narrow))
    assert torch.equal(targets, expected)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"reward": torch.zeros(4, 12)}, r"reward has shape \[4, 12\]; log_ratio has \[4, 13\]"),
        ({"bootstrap": torch.zeros(13)}, r"bootstrap has shape \[13\]: give one value per row, \[4\]"),
        ({"log_ratio": torch.zeros(13)}, r"log_ratio has shape \[13\]"),
        ({"valid": torch.ones(4, 13)}, r"valid is torch.float32"),
        ({"rho_clip": 0.0}, "rho_clip=0.0"),
        ({"lambda_": 1.5}, "lambda_=1.5"),
    ],
)
def test_mistakes_are_named(change, message):
    names = ("log_ratio", "reward", "discount", "value", "bootstrap", "valid")
    with pytest.raises(ValueError, match=message):
        vtrace(**(dict(zip(names, problem(), strict=True)) | change))
