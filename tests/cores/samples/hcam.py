"""Tiny hierarchical chunk memories for the certificate."""

import random

from recollect.cores.hcam import ChunkAttentionVariant, HierarchicalChunkMemoryConfig

TINY = {"dim": 8, "num_heads": 2, "hidden_dim": 12, "memory_len": 4, "chunk_len": 3, "num_chunks": 4, "top_k": 2}

CONFIGS = [
    HierarchicalChunkMemoryConfig(**TINY),
    HierarchicalChunkMemoryConfig(**TINY, carry_across_episodes=True),
    HierarchicalChunkMemoryConfig(**TINY, chunk_overlap=1, dropout=0.1),
    HierarchicalChunkMemoryConfig(
        **TINY, reading=ChunkAttentionVariant(relevance="full_softmax", key_projection=False)
    ),
    HierarchicalChunkMemoryConfig(**TINY, reading=ChunkAttentionVariant(chunk_positions=False)),
    HierarchicalChunkMemoryConfig(**TINY, dropout=0.1, reading=ChunkAttentionVariant(gate="gru")),
    HierarchicalChunkMemoryConfig(
        **TINY | {"memory_len": 2, "top_k": 9}, num_layers=1, chunk_overlap=1, carry_across_episodes=True
    ),
    HierarchicalChunkMemoryConfig(**TINY | {"memory_len": 1, "chunk_len": 1, "num_chunks": 9, "top_k": 1}),
    HierarchicalChunkMemoryConfig(
        dim=9,
        num_heads=3,
        memory_len=7,
        chunk_len=5,
        num_chunks=2,
        top_k=1,
        num_layers=1,
        reading=ChunkAttentionVariant(relevance="full_softmax"),
    ),
    HierarchicalChunkMemoryConfig(
        **TINY | {"num_chunks": 17, "top_k": 1},
        carry_across_episodes=True,
        reading=ChunkAttentionVariant(relevance="full_softmax"),
    ),
    HierarchicalChunkMemoryConfig(**TINY, reading=ChunkAttentionVariant(chunk_gradients="call")),
    HierarchicalChunkMemoryConfig(**TINY, reading=ChunkAttentionVariant(relevance_heads=True)),
    HierarchicalChunkMemoryConfig(
        **TINY | {"num_chunks": 17, "top_k": 1},
        carry_across_episodes=True,
        reading=ChunkAttentionVariant(relevance="full_softmax", key_projection=False, relevance_heads=True),
    ),
    HierarchicalChunkMemoryConfig(
        **TINY | {"top_k": 9},
        chunk_overlap=1,
        carry_across_episodes=True,
        reading=ChunkAttentionVariant(relevance="full_softmax", key_projection=False, chunk_gradients="call"),
    ),
    HierarchicalChunkMemoryConfig(
        **TINY | {"memory_len": 1, "chunk_len": 1, "num_chunks": 9, "top_k": 1},
        reading=ChunkAttentionVariant(chunk_gradients="call"),
    ),
]


def sample(rng: random.Random) -> HierarchicalChunkMemoryConfig:
    """A random valid configuration."""
    heads = rng.choice([1, 2, 3])
    overlap = rng.choice([0, 0, 1])
    chunk_len = rng.randint(1 + overlap, 5)
    return HierarchicalChunkMemoryConfig(
        dim=heads * rng.choice([3, 4]),
        num_layers=rng.randint(1, 3),
        num_heads=heads,
        hidden_dim=rng.choice([None, 5]),
        dropout=rng.choice([0.0, 0.2]),
        memory_len=rng.randint(max(1, chunk_len - 1), 8),
        chunk_len=chunk_len,
        num_chunks=rng.choice([1, 2, 3, 6, 12]),
        top_k=rng.choice([1, 2, 3, 20]),
        chunk_overlap=overlap,
        carry_across_episodes=rng.random() < 0.3,
        reading=ChunkAttentionVariant(
            relevance=rng.choice(["topk_softmax", "full_softmax"]),
            key_projection=rng.random() < 0.5,
            chunk_positions=rng.random() < 0.5,
            gate=rng.choice(["residual", "residual", "gru"]),
            relevance_heads=rng.random() < 0.3,
        ),
    )
