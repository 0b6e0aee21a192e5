import random

from recollect.cores.config import CoreConfig
from recollect.cores.ttm import RecurrentTransformerConfig as Config

CONFIGS: list[CoreConfig] = [
    Config(dim=8, num_tokens=5, num_slots=4, num_reads=3, num_heads=2, hidden_dim=12),
    Config(dim=8, num_tokens=3, num_slots=2, num_reads=4, num_heads=2, variant="released", learned_initial_state=True),
    Config(dim=8, num_tokens=3, num_slots=4, num_reads=2, processor="mixer", summarizer="latent_query"),
    Config(dim=8, num_tokens=3, num_slots=4, num_reads=2, num_layers=2, processor="mixer", variant="released"),
    Config(
        dim=8, num_tokens=1, num_slots=4, num_reads=2, processor="mlp", summarizer="mha", learned_initial_state=True
    ),
    Config(dim=8, num_tokens=5, num_slots=3, num_reads=3, num_heads=2, summarizer="pooling"),
]


def sample(rng: random.Random) -> CoreConfig:
    num_tokens = rng.randint(1, 5)
    summarizer = rng.choice(["mlp", "latent_query", "mha", "pooling"])
    return Config(
        dim=rng.choice([8, 16]),
        num_tokens=num_tokens,
        num_slots=rng.randint(1, 5),
        num_reads=rng.randint(1, num_tokens if summarizer == "pooling" else 5),
        num_layers=rng.randint(1, 2),
        num_heads=rng.choice([1, 2, 4]),
        hidden_dim=rng.choice([None, 12]),
        summarizer=summarizer,
        processor=rng.choice(["transformer", "mixer", "mlp"]),
        variant=rng.choice(["paper", "released"]),
        learned_initial_state=rng.random() < 0.5,
    )
