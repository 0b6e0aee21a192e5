import random

from recollect.cores.mott import SpatialAttentionMemoryConfig as Config

CONFIGS = [
    Config(dim=6, map_dim=7, key_dim=3, frequencies=2, num_heads=2, query_dim=5, answer_dim=9),
    Config(dim=5, grid=(2, 2), channels=1, map_dim=6, key_dim=2, frequencies=1, num_heads=3, query_dim=4, answer_dim=6),
    Config(dim=7, grid=(1, 3), channels=2, map_dim=4, key_dim=1, kernel=1, num_heads=1, query_dim=4, answer_dim=6),
    Config(dim=6, grid=(2, 2), channels=1, vision="feedforward", map_dim=6, frequencies=2, key_dim=2, query_dim=4),
]


def sample(rng: random.Random) -> Config:
    map_dim = rng.randint(2, 8)
    return Config(
        dim=rng.randint(8, 10),  # of the inputs too, and they hold the map
        grid=rng.choice([(1, 1), (1, 2), (2, 2)]),
        channels=rng.choice([1, 2]),
        vision=rng.choice(["recurrent", "feedforward"]),
        map_dim=map_dim,
        key_dim=rng.randint(1, map_dim - 1),
        kernel=rng.choice([1, 3]),
        frequencies=rng.randint(1, 3),
        num_heads=rng.randint(1, 4),
        query_dim=rng.randint(1, 6),
        answer_dim=rng.randint(1, 9),
    )
