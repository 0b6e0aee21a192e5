import random

from recollect.cores.config import CoreConfig
from recollect.cores.ttm import TokenTuringMachineConfig as Config

CONFIGS: list[CoreConfig] = [
    Config(dim=8, num_tokens=5, num_slots=6, num_reads=3, num_heads=2, hidden_dim=12),
    Config(dim=8, num_tokens=3, num_slots=4, num_reads=2, num_heads=2, processor="mixer", positions="released"),
    Config(dim=8, num_tokens=1, num_slots=4, num_reads=2, num_layers=2, processor="mlp", positions="none"),
    Config(
        dim=8,
        num_tokens=3,
        num_slots=4,
        num_reads=2,
        num_heads=2,
        summarizer="latent_query",
        learned_initial_state=True,
    ),
    Config(dim=8, num_tokens=3, num_slots=4, num_reads=2, num_heads=2, summarizer="mha", positions="released"),
    Config(dim=8, num_tokens=3, num_slots=5, num_reads=4, num_heads=2, summarizer="pooling", positions="released"),
    Config(dim=8, num_tokens=3, num_slots=4, num_reads=2, num_heads=2, summarizer="pooling"),
    Config(dim=8, num_tokens=3, num_slots=4, num_reads=2, num_heads=2, memory="erase_add", learned_initial_state=True),
    Config(dim=8, num_tokens=3, num_slots=4, num_reads=2, num_heads=2, memory="erase_add_released", summarizer="mha"),
    Config(
        dim=8, num_tokens=2, num_slots=6, num_reads=3, num_heads=2, memory="concatenate", learned_initial_state=True
    ),
    Config(dim=8, num_tokens=2, num_slots=2, num_reads=3, processor="mixer", memory="concatenate", positions="none"),
    Config(dim=8, num_tokens=3, num_slots=4, num_reads=2, num_heads=2, memory="none", learned_initial_state=True),
    Config(dim=8, num_tokens=7, num_slots=3, num_reads=2, num_heads=2, summarizer="pooling"),  # summed before the loop
    Config(dim=8, num_tokens=2, num_slots=4, num_reads=2, num_heads=2, summarizer="none", memory="concatenate"),
    Config(
        dim=8,
        num_tokens=2,
        num_slots=2,
        num_reads=2,
        processor="mixer",
        summarizer="none",
        memory="sample",
        learned_initial_state=True,
    ),
    Config(dim=8, num_tokens=3, num_slots=3, num_reads=2, num_heads=2, summarizer="pooling", memory="sample"),
]


def sample(rng: random.Random) -> CoreConfig:
    num_tokens = rng.randint(1, 5)
    memory = rng.choice(["token_summary", "erase_add", "erase_add_released", "concatenate", "sample", "none"])
    num_slots = num_tokens * rng.randint(1, 3) if memory in ("concatenate", "sample") else rng.randint(1, 6)
    summarizer = rng.choice(["mlp", "latent_query", "mha", "pooling"])
    if memory in ("concatenate", "sample") and rng.random() < 0.5:
        summarizer = "none"
    return Config(
        dim=rng.choice([8, 16]),
        num_tokens=num_tokens,
        num_slots=num_slots,
        num_reads=num_tokens if summarizer == "none" else rng.randint(1, num_slots + num_tokens),
        num_layers=rng.randint(1, 2),
        num_heads=rng.choice([1, 2, 4]),
        hidden_dim=rng.choice([None, 12]),
        summarizer=summarizer,
        processor=rng.choice(["transformer", "mixer", "mlp"]),
        memory=memory,
        positions=rng.choice(["paper", "released", "none"]),
        learned_initial_state=rng.random() < 0.5,
    )
