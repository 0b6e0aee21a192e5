import json

import numpy as np
import pytest
from gymnasium import spaces

from recollect.agents.spaces import is_image, sides, space_from_json, space_to_json

SPACES = [
    spaces.Discrete(3, start=-1),
    spaces.MultiDiscrete([[2, 3], [4, 5]], start=[[0, 1], [2, 3]]),
    spaces.MultiBinary(3),
    spaces.MultiBinary((2, 3)),
    spaces.Box(0, 255, (4, 4, 3), np.uint8),
    spaces.Box(-np.inf, np.inf, (2,)),
    spaces.Box(np.array([-1.5, -np.inf, 0.1]), np.array([1.5, 3.0, np.inf]), dtype=np.float64),
    spaces.Box(-1, 1, ()),
    spaces.Dict({"b": spaces.Discrete(2), "a": spaces.Tuple([spaces.Discrete(2), spaces.Box(0, 1, (1,))])}),
]


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_spaces_survive_json(space):
    text = json.dumps(space_to_json(space), allow_nan=False)
    back = space_from_json(json.loads(text))
    assert back == space
    if isinstance(space, spaces.Dict):
        assert list(back.spaces) == list(space.spaces)


def test_other_spaces_are_named():
    with pytest.raises(ValueError, match="a Text space cannot be saved"):
        space_to_json(spaces.Text(3))
    with pytest.raises(ValueError, match="unknown kind of space 'Graph'"):
        space_from_json({"kind": "Graph"})


def test_channels_are_the_shorter_end_and_the_last_one_where_both_are_equal():
    for shape, expected in (
        ((36, 40), (36, 40, 1)),
        ((36, 40, 3), (36, 40, 3)),
        ((3, 36, 40), (36, 40, 3)),
        ((36, 40, 36), (36, 40, 36)),
    ):
        assert sides(shape) == expected


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_images_have_more_than_sixteen_rows_or_columns(dtype):
    def box(*shape):
        return spaces.Box(0, 200, shape, dtype)

    assert is_image(box(17, 16, 3)) and is_image(box(3, 16, 17))
    assert not is_image(box(16, 16, 3)) and not is_image(box(3, 16, 16))
    assert is_image(box(17, 16)) == (dtype == np.uint8), "floats without channels are a table"
