import random

from recollect.cores.recurrent import GRUConfig

CONFIGS = [
    GRUConfig(dim=8),
    GRUConfig(dim=5, num_layers=1, learned_initial_state=True),
    GRUConfig(dim=8, num_layers=3, dropout=0.1, learned_initial_state=True),
    GRUConfig(dim=6, num_layers=1, state_noise=0.3),
    GRUConfig(dim=8, gate_stretch=0.5),
    GRUConfig(dim=6, num_layers=1, forget_bias=1.0),
    GRUConfig(dim=8, chrono_steps=20),
]


def sample(rng: random.Random) -> GRUConfig:
    return GRUConfig(
        dim=rng.randint(1, 12),
        num_layers=rng.randint(1, 4),
        dropout=rng.choice([0.0, 0.3]),
        learned_initial_state=rng.random() < 0.5,
        gate_stretch=rng.choice([0.0, 0.1, 2.0]),
        **rng.choice([{}, {"forget_bias": 1.0}, {"chrono_steps": 50}]),
    )
