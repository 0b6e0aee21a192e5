"""What environments return is right, or taken without loss, or refused with row, part, value and space."""

import re
import warnings

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from recollect.tasks.gymnasium.checked_values import read_reset, read_step, read_vector_step
from recollect.tasks.gymnasium.rows import BrokenEnvironmentError, LocalRows
from recollect.tasks.gymnasium.spaces import ActionWriter, ObservationReader

IMAGE = spaces.Box(0, 255, (9, 9, 3), np.uint8)
VECTOR = spaces.Box(-1, 1, (3,), np.float32)
FREE = spaces.Box(-np.inf, np.inf, (2,), np.float32)
NESTED = spaces.Dict({"arm": VECTOR, "eyes": spaces.Dict({"left": IMAGE})})


class Returns(gymnasium.Env):
    """Returns the given observation at its second step, and a sample of its space before."""

    action_space = spaces.Discrete(2)

    def __init__(self, space, observation):
        self.observation_space, self.observation = space, observation

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation, 1.0, False, False, {}


def rows(space, observation):
    reader, writer = ObservationReader(source=space), ActionWriter(target=Returns.action_space)
    made = iter([space.sample(), observation])
    return LocalRows(lambda: Returns(space, next(made)), "Returns", 2, reader, writer)


def returned(space, observation):
    """Return what the second of two rows gets."""
    world = rows(space, observation)
    world.reset(0)
    found = world.step(np.zeros(2, np.int64), np.zeros(2, bool)).observation
    return {name: part[1] for name, part in found.items()} if isinstance(found, dict) else found[1]


REFUSED = {
    "fractions for bytes": (
        IMAGE,
        np.full(IMAGE.shape, 0.7, np.float32),
        r"observation is 0\.7 at \[0, 0, 0\].*uint8",
    ),
    "too large for bytes": (IMAGE, np.full(IMAGE.shape, 300), "is 300 .*out of range"),
    "negative for bytes": (IMAGE, np.full(IMAGE.shape, -1), "is -1 .*out of range"),
    "fractions for integers": (spaces.Box(0, 10, (4,), np.int64), np.full(4, 2.9), r"is 2\.9 .*no integer"),
    "out of a range of integers": (spaces.Box(0, 10, (4,), np.int64), np.full(4, 11), "is 11 .*out of range"),
    "fraction for a choice": (spaces.Discrete(5), 2.7, r"is 2\.7.*Discrete\(5\)"),
    "choice that is too large": (spaces.Discrete(5), 5, "is 5.*out of range"),
    "choice before the start": (spaces.Discrete(5, start=2), 1, "is 1.*out of range"),
    "one of several choices": (spaces.MultiDiscrete([3, 3]), np.array([1, 5]), r"is 5 at \[1\]"),
    "two for a bit": (spaces.MultiBinary(3), np.array([0, 2, 1]), r"is 2 at \[1\]"),
    "missing number": (spaces.Discrete(5), float("nan"), "is nan"),
    "one axis more": (VECTOR, np.zeros((1, 3), np.float32), r"has shape \(1, 3\)"),
    "too few numbers": (VECTOR, np.zeros(2, np.float32), r"has shape \(2,\)"),
    "nothing": (VECTOR, None, "is None .NoneType.*return numbers"),
    "words": (VECTOR, ["a", "b", "c"], r"return numbers"),
    "too large for float32": (spaces.Box(-np.inf, np.inf, (3,), np.float64), np.full(3, 1e300), "1e.300.*float32"),
    "rows of different lengths": (
        spaces.Box(-1, 1, (2, 2)),
        [[0, 0], [0]],
        r"is \[\[0, 0\], \[0\]\] .list.*return numbers",
    ),
    "masked numbers": (VECTOR, np.ma.array(np.zeros(3), mask=[1, 0, 0]), "has masked numbers"),
    "missing part": (NESTED, {"eyes": {"left": np.zeros(IMAGE.shape, np.uint8)}}, "part 'arm' is missing.*'eyes'"),
    "missing inner part": (NESTED, {"arm": np.zeros(3), "eyes": {"right": 1}}, "part 'left' is missing.*'right'"),
    "part out of range": (
        NESTED,
        {"arm": np.zeros(3), "eyes": {"left": np.full(IMAGE.shape, 256)}},
        "eyes_left is 256",
    ),
    "number for a text": (spaces.Text(8), 7, "the text is 7 .int"),
    "short tuple": (spaces.Tuple((VECTOR, spaces.Discrete(2))), (np.zeros(3),), "part 1 is missing"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_values_outside_their_space_are_refused(case):
    space, observation, message = REFUSED[case]
    with pytest.raises(
        BrokenEnvironmentError, match=rf"(?s)row 1 of Returns returned a wrong observation: .*{message}"
    ):
        returned(space, observation)


TAKEN = {
    "whole floats for bytes": (IMAGE, np.full(IMAGE.shape, 7.0), np.full(IMAGE.shape, 7, np.uint8)),
    "wide integers for bytes": (IMAGE, np.full(IMAGE.shape, 255), np.full(IMAGE.shape, 255, np.uint8)),
    "integers for floats": (VECTOR, np.array([1, 0, 1]), np.array([1, 0, 1], np.float32)),
    "a list": (VECTOR, [0, 0, 1], np.array([0, 0, 1], np.float32)),
    "a tensor": (VECTOR, torch.ones(3), np.ones(3, np.float32)),
    "a tensor that records gradients": (VECTOR, torch.ones(3, requires_grad=True), np.ones(3, np.float32)),
    "a tensor of bfloat16": (VECTOR, torch.ones(3, dtype=torch.bfloat16), np.ones(3, np.float32)),
    "double precision": (VECTOR, np.full(3, 0.1), np.full(3, 0.1, np.float32)),
    "numbers that are not finite": (
        spaces.Box(-np.inf, np.inf, (3,)),
        np.array([np.nan, np.inf, 0]),
        np.array([np.nan, np.inf, 0], np.float32),
    ),
    "a choice in an array": (spaces.Discrete(5), np.array([4]), 4),
    "a whole float as a choice": (spaces.Discrete(5), 4.0, 4),
    "a choice from its start": (spaces.Discrete(3, start=-1), -1, 0),
    "choices from their starts": (spaces.MultiDiscrete([3, 3], start=[1, -1]), np.array([3, -1]), np.array([2, 0])),
    "bits": (spaces.MultiBinary(2), np.array([True, False]), np.array([1, 0], np.int8)),
}


@pytest.mark.parametrize("case", TAKEN)
def test_values_that_lose_nothing_are_taken(case):
    space, observation, want = TAKEN[case]
    found = returned(space, observation)
    np.testing.assert_array_equal(found, want)
    assert np.asarray(found).dtype == np.asarray(want).dtype


@given(arrays.arrays(st.sampled_from(["f4", "f8", "i4", "i8", "u1", "?"]), 3, elements=None))
def test_whatever_is_taken_has_the_same_numbers(value):
    reader = ObservationReader(source=spaces.Box(-5, 5, (3,), np.int16))
    try:
        (found,) = reader.read([value])
    except ValueError:
        whole = value.astype(float) == np.floor(value.astype(float))
        assert not (whole & (np.abs(value.astype(float)) <= 5)).all()
    else:
        assert found.dtype == np.int16
        np.testing.assert_array_equal(found.astype(float), value.astype(float))


@pytest.mark.parametrize(
    "reward", [1, 1.0, np.float64(1), np.array([1.0]), np.array([[1]]), torch.tensor(1.0), True, [1.0]]
)
def test_rewards_are_one_number(reward):
    assert read_step((0, reward, np.bool_(False), np.array([1]), {}))[1:] == (1.0, False, True, None)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ((0, None, False, False, {}), "reward is None: return one number"),
        ((0, np.zeros(2), False, False, {}), "reward is array"),
        ((0, [[1], [2, 3]], False, False, {}), "reward is .*return one number"),
        ((0, np.ma.masked, False, False, {}), "reward is masked"),
        ((0, -1e300, False, False, {}), r"reward is -1e\+300, which float32 cannot hold"),
        ((0, 1.0, [[1], [2, 3]], False, {}), "terminated is .*return True or False"),
        ((0, 1.0, None, False, {}), "terminated is None: return True or False"),
        ((0, 1.0, False, 2, {}), "truncated is 2: return True or False"),
        ((0, 1.0, False, {}), "step returned 4 values .*before version 0.26"),
        ((0, 1.0, False, False, {}, 1), "step returned 6 values .*: return these five values"),
        (0, "step returned a int.*: return these five values"),
    ],
)
def test_wrong_steps_are_refused(answer, message):
    with pytest.raises(ValueError, match=message):
        read_step(answer)


def test_numbers_of_torch_that_numpy_cannot_read_are_taken():
    reward = torch.tensor(1.0, requires_grad=True)
    assert read_step([0, reward, torch.tensor(False), False, {}])[1:] == (1.0, False, False, None)
    with pytest.raises(ValueError, match=r"reward is tensor.*return one number"):
        read_step((0, torch.ones(2, requires_grad=True), False, False, {}))


def test_floats_beyond_their_bounds_are_taken_with_one_warning():
    reader = ObservationReader(source=spaces.Dict({"arm": spaces.Box(-1, np.inf, (2,)), "free": FREE}))
    inside = {"arm": np.array([np.nan, 1e9], np.float32), "free": np.full(2, 1e9, np.float32)}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        reader.read([inside])  # a number that is not known is beyond nothing
    message = re.escape("arm is -1.5 in row 1 at [0], beyond its space Box(-1.0, inf, (2,), float32)")
    with pytest.warns(RuntimeWarning, match=message):
        found = reader.read([inside, {**inside, "arm": np.array([-1.5, 0.0], np.float32)}])
    assert found["arm"][1].tolist() == [-1.5, 0.0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        reader.read([{**inside, "arm": np.array([-9.0, 0.0], np.float32)}])


def test_after_64_reads_every_sixteenth_is_compared_with_the_bounds():
    reader = ObservationReader(source=spaces.Box(-1, 1, (2,)))
    inside, beyond = np.zeros(2, np.float32), np.full(2, 3, np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(64):
            reader.read([inside])
        for _ in range(15):
            reader.read([beyond])
    with pytest.warns(RuntimeWarning, match="is 3.0 in row 0 at"):
        reader.read([beyond])


class OldReset(Returns):
    def reset(self):
        return super().reset()


def test_keywords_that_an_old_reset_does_not_take_are_named_with_the_remedy():
    reader, writer = ObservationReader(source=VECTOR), ActionWriter(target=Returns.action_space)
    world = LocalRows(lambda: OldReset(VECTOR, None), "OldReset", 1, reader, writer)
    with pytest.raises(
        BrokenEnvironmentError, match=r"row 0 of OldReset failed in reset.*'seed': .*before version 0.26"
    ):
        world.reset(0)


def test_vector_environments_give_one_number_a_row():
    flags = [1, 0], np.array([0.0, 1.0])
    _, *found, info = read_vector_step([None, [1, 2.5], *flags, 7], 2)
    assert [part.tolist() for part in found] == [[1.0, 2.5], [True, False], [False, True]] and info == 7
    assert [part.dtype for part in found] == [np.float32, bool, bool]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ((0, np.ones(3), [0, 0], [0, 0], {}), r"reward is array.*: return one number for each of 2 environments"),
        ((0, [1, None], [0, 0], [0, 0], {}), "reward is .*: return one number"),
        ((0, np.array([0, -1e300]), [0, 0], [0, 0], {}), r"reward is -1e\+300 in row 1, which float32 cannot hold"),
        ((0, [1, 1], ["False", "True"], [0, 0], {}), "terminated is .*: return True or False for each of 2"),
        ((0, [1, 1], [0, 0], [2, 0], {}), r"truncated is \[2, 0\]: return True or False"),
        ((0, [1, 1], False, [0, 0], {}), "terminated is False: return True or False for each of 2"),
        ((0, [1, 1], [0, 0], {}), "step returned 4 values .*before version 0.26"),
    ],
)
def test_wrong_steps_of_vector_environments_are_refused(answer, message):
    with pytest.raises(ValueError, match=message):
        read_vector_step(answer, 2)


def test_resets_of_the_old_interface_are_refused():
    assert read_reset((3, {"a": 1})) == read_reset([3, {}]) == (3, None)
    with pytest.raises(ValueError, match=r"returned \(observation, None\): return a dict as info"):
        read_reset((3, None))
    for answer in (np.zeros(3), (np.zeros(3), np.zeros(3)), {"a": 1}):
        with pytest.raises(ValueError, match=r"reset returned .*\(observation, info\).*before version 0.26"):
            read_reset(answer)


@pytest.mark.parametrize(
    ("space", "shown", "named"),
    [
        (NESTED, {"arm": np.zeros(3, np.float32), "eyes": {"left": IMAGE.sample()}, "goal": 1}, "part 'goal', which"),
        (NESTED, {"arm": np.zeros(3, np.float32), "eyes": {"left": IMAGE.sample(), "right": 2}}, "'right' in 'eyes'"),
        (spaces.Tuple((VECTOR, spaces.Discrete(2))), (np.zeros(3, np.float32), 1, 7), "part 2, which"),
    ],
)
def test_parts_that_no_space_declares_are_named_once(space, shown, named):
    reader = ObservationReader(source=space)
    right = space.sample()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        reader.read([right, right])
    with pytest.warns(RuntimeWarning, match=named):
        found = reader.read([right, shown])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = reader.read([right, shown])
    assert list(found) == list(again) == list(reader.space)
