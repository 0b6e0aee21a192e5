import pytest
import torch

from recollect.cores.mott import SpatialAttentionMemoryConfig
from recollect.layers.spatial_attention import attend_to_places, spatial_basis
from recollect.layers.tap import Tap


def test_a_width_that_is_no_map_names_field_value_and_remedy():
    with pytest.raises(ValueError, match=r"input_dim=10 is no multiple of the 4 places of grid=\(2, 2\): give"):
        SpatialAttentionMemoryConfig(grid=(2, 2)).build(10)
    with pytest.raises(ValueError, match=r"input_dim=10 .*grid=\(2, 2\) and channels=3 has 12 numbers; give"):
        SpatialAttentionMemoryConfig(grid=(2, 2), channels=3).build(10)


def test_the_basis_has_every_product_of_waves():
    basis = spatial_basis(11, 7, 4)
    assert basis.shape == (77, 64)
    assert torch.allclose(basis[0].view(8, 8)[:4, :4], torch.ones(4, 4)), "cosines at the corner"
    assert torch.linalg.matrix_rank(basis.double()) > 40, "places differ"


def test_attention_finds_the_key_of_the_query():
    vision, query, basis = torch.zeros(1, 3, 9), torch.zeros(1, 1, 1 + 4), spatial_basis(3, 3, 1)
    vision[0, 0, 5], vision[0, 1, 5] = 1.0, 7.0  # a key of 1 and a value of 7 at one place
    query[0, 0, 0] = 50.0
    taps = {"tap": Tap("b h t y x"), "what_where_tap": Tap("b h t y x")}
    answers = attend_to_places(vision, query, basis, (3, 3), **taps)
    assert torch.allclose(answers[0, :2], torch.tensor([7.0, 0.0]))
