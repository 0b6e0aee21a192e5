import pytest
import torch

from recollect.cores.mott import SpatialAttentionMemoryConfig
from recollect.layers.spatial_attention import spatial_basis


def test_a_width_that_is_no_map_names_field_value_and_remedy():
    with pytest.raises(ValueError, match=r"input_dim=10 is no multiple of the 4 places of grid=\(2, 2\): give"):
        SpatialAttentionMemoryConfig(grid=(2, 2)).build(10)
    with pytest.raises(ValueError, match=r"input_dim=10 .*grid=\(2, 2\) and channels=3 has 12 numbers; give"):
        SpatialAttentionMemoryConfig(grid=(2, 2), channels=3).build(10)


def test_the_basis_has_every_product_of_waves():
    basis = spatial_basis(11, 7, 4)
    assert basis.shape == (77, 64)
    assert torch.allclose(basis[0].view(8, 8)[:4, :4], torch.ones(4, 4)), "cosines at the corner"
    assert torch.linalg.matrix_rank(basis.double()) > 40, "places can be told apart"


def test_attention_finds_what_the_query_asks_for():
    core = SpatialAttentionMemoryConfig(
        dim=4, grid=(3, 3), vision="feedforward", map_dim=3, key_dim=1, frequencies=1, num_heads=1
    ).build(9)
    vision, query = torch.zeros(1, 3, 3, 3), torch.zeros(1, 1 + 4)
    vision[0, 0, 1, 2], vision[0, 1, 1, 2] = 1.0, 7.0  # a key of 1 and a value of 7 at one place
    query[0, 0] = 50.0
    assert torch.allclose(core.look(vision, query)[0, :2], torch.tensor([7.0, 0.0]))
