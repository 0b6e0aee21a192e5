import random

from recollect.cores.feedback import FeedbackTransformerConfig

CONFIGS = [
    FeedbackTransformerConfig(dim=8, num_heads=2, memory_len=4),
    FeedbackTransformerConfig(dim=8, num_heads=2, memory_len=4, norm="pre", num_layers=3),
    FeedbackTransformerConfig(dim=8, num_heads=1, memory_len=1, share_projections=False, hidden_dim=12),
    FeedbackTransformerConfig(dim=8, num_heads=2, memory_len=20, norm="pre", share_projections=False, num_layers=1),
    FeedbackTransformerConfig(dim=8, num_heads=2, memory_len=3, official_empty=True),
    FeedbackTransformerConfig(
        dim=8, num_heads=4, memory_len=5, official_empty=True, norm="pre", share_projections=False
    ),
    FeedbackTransformerConfig(dim=8, num_heads=2, memory_len=4, dropout=0.1),
]


def sample(rng: random.Random) -> FeedbackTransformerConfig:
    num_heads = rng.choice([1, 2, 4])
    return FeedbackTransformerConfig(
        dim=num_heads * rng.randint(1, 4),
        num_layers=rng.randint(1, 3),
        num_heads=num_heads,
        hidden_dim=rng.choice([None, 7, 16]),
        dropout=rng.choice([0.0, 0.2]),
        memory_len=rng.randint(1, 20),
        norm=rng.choice(["pre", "post"]),
        share_projections=rng.random() < 0.5,
        official_empty=rng.random() < 0.5,
    )
