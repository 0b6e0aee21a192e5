import random

from recollect.cores.recurrent import LSTMConfig

CONFIGS = [
    LSTMConfig(dim=8),
    LSTMConfig(dim=5, num_layers=1, learned_initial_state=True),
    LSTMConfig(dim=8, num_layers=3, dropout=0.1, learned_initial_state=True),
    LSTMConfig(dim=8, gate_stretch=0.5),
    LSTMConfig(dim=6, num_layers=1, forget_bias=1.0),
    LSTMConfig(dim=8, chrono_steps=20),
]


def sample(rng: random.Random) -> LSTMConfig:
    return LSTMConfig(
        dim=rng.randint(1, 12),
        num_layers=rng.randint(1, 4),
        dropout=rng.choice([0.0, 0.3]),
        learned_initial_state=rng.random() < 0.5,
        gate_stretch=rng.choice([0.0, 0.1, 2.0]),
        **rng.choice([{}, {"forget_bias": 1.0}, {"chrono_steps": 50}]),
    )
