"""Two sizes of the agents of Lampinen et al. 2021: the paper's, and one for two processor cores and ten minutes.

``paper`` is the paper's table 1. Ours is what the table leaves open: feed-forward layers of 2048, a window as long as
the unroll or a chunk, a discount of 0.99, gradients of norm 40 at most, previous action and reward as inputs, bfloat16,
and the number of updates. ``lite`` is ours: symbols instead of pixels, one or two layers of width 64, larger learning
rates.
"""

from dataclasses import replace
from typing import Any

from recollect.agents.config import ActorCriticConfig
from recollect.agents.encoder_config import EncoderConfig
from recollect.cores.config import CoreConfig
from recollect.cores.find import sized_core
from recollect.cores.hcam import HierarchicalChunkMemoryConfig
from recollect.cores.transformer_xl.config import TransformerXLConfig
from recollect.tasks.worlds.contract import WorldConfig
from recollect.training import FitConfig, ImpalaConfig, LossConfig, OptimizerConfig, ReuseConfig

TWICE = ReuseConfig(passes=2, minibatches=8)
"""Sixteen optimiser steps per rollout: memory needs more optimiser steps, rather than more episodes (docs/log.md)."""


def lite_core(
    key: str, *, steps: int, window: int = 16, chunk: int = 16, top_k: int = 16, layers: int = 2, dim: int = 64
) -> CoreConfig:
    """Return a small core whose chunks hold ``steps`` steps in all, and whose window has ``window`` steps.

    Args:
        key: of any core.
        steps: in all chunks together.
        window: steps of the window.
        chunk: steps of a chunk.
        top_k: chunks that hcam reads.
        layers: layers of cores with attention.
        dim: width; hidden layers have twice that.
    """
    sizes: dict[str, Any] = {
        "dim": dim,
        "num_layers": 1 if key in ("lstm", "gru", "memoryless") else layers,
        "num_heads": 4,
        "hidden_dim": 2 * dim,
        "memory_len": window,
        "chunk_len": chunk,
        "num_chunks": -(-steps // chunk),
        "top_k": top_k,
        "self_per_cross": min(layers, 2),  # of tlb: its slots are read by the top layer at the latest
    }
    if key != "hcam":
        sizes.pop("top_k")  # transformer-xl's is another one
    if key == "transformer-xl":
        sizes |= {"gate": "gru", "relu_outputs": True}
    return sized_core(key, **sizes)


def lite(
    world: WorldConfig, core: CoreConfig, *, steps: int, batch_size: int = 64, unroll: int = 32, **loss: Any
) -> ImpalaConfig:
    """Return the run of a small agent that learns fast; ``loss`` changes the costs."""
    costs = {"discount": 0.99, "baseline_cost": 0.5, "entropy_cost": 0.02, "reduction": "mean"} | loss
    return ImpalaConfig(
        world=world,
        core=core,
        agent=ActorCriticConfig(encoders=EncoderConfig(sentence_dim=32, word_dim=16), width=64),
        optimizer=OptimizerConfig(algorithm="adam", learning_rate=2e-3, warmup_steps=20, clip_norm=1.0),
        loss=LossConfig(**costs),
        batch_size=batch_size,
        unroll=unroll,
        fit=FitConfig(steps=steps, report_every=25, evaluate_every=50, checkpoint_every=200, stop_score=0.98),
    )


def lite_symbols(world: WorldConfig, core: CoreConfig, *, steps: int, unroll: int, **loss: Any) -> ImpalaConfig:
    """Return the run of a small agent for grids of symbols, whose encoder is a single linear map.

    No gradient enters a chunk, so layers before the memory are not trained to keep what is needed later. A linear map
    with few features per cell loses nothing.
    """
    config = lite(world, core, steps=steps, batch_size=128, unroll=unroll, reuse=TWICE, **loss)
    encoders = replace(config.agent.encoders, hidden=(), tile_dim=4)
    return replace(
        config,
        agent=replace(config.agent, encoders=encoders),
        optimizer=replace(config.optimizer, learning_rate=1e-3),
    )


def lite_spoken(world: WorldConfig, core: CoreConfig, *, steps: int, unroll: int, **loss: Any) -> ImpalaConfig:
    """Return the lite config of a world of symbols that also has sentences.

    Sentences are normalised, so that memories are found by words, and the learning rate is twice that of
    :func:`lite_symbols`.
    """
    config = lite_symbols(world, core, steps=steps, unroll=unroll, **loss)
    encoders = replace(config.agent.encoders, norm_sentences=True)
    return replace(
        config,
        agent=replace(config.agent, encoders=encoders),
        optimizer=replace(config.optimizer, learning_rate=2e-3),
    )


def paper_core(key: str, *, chunk: int, top_k: int, steps: int, unroll: int, extra: int) -> CoreConfig:
    """Return the core at the size of table 1. ``extra``: steps that transformer-xl sees beyond the unroll."""
    common: dict[str, Any] = {"dim": 512, "num_layers": 4, "num_heads": 8}
    if key == "hcam":
        window = max(chunk, unroll)
        return HierarchicalChunkMemoryConfig(
            **common, hidden_dim=2048, memory_len=window, chunk_len=chunk, num_chunks=-(-steps // chunk), top_k=top_k
        )
    if key == "transformer-xl":
        return TransformerXLConfig(
            **common, memory_len=unroll + extra, gate="gru", relu_outputs=True, activation="relu"
        )
    common |= {"activation": "relu"}  # "All activation fns"
    if key == "lstm":
        common |= {"forget_bias": 1.0}  # Haiku's default, since the authors' memory is written in Haiku
    return sized_core(key, **common)


def paper(
    world: WorldConfig, core: CoreConfig, *, unroll: int, entropy: float, learning_rate: float = 2e-4, steps: int
) -> ImpalaConfig:
    """Return the run of the paper's agent, of ``steps`` updates (see the top of this module)."""
    return ImpalaConfig(
        world=world,
        core=core,
        agent=ActorCriticConfig(encoders=EncoderConfig(sentence_dim=256), width=512, head_dim=512, reconstruct=True),
        optimizer=OptimizerConfig(algorithm="adam", learning_rate=learning_rate, clip_norm=40.0),
        loss=LossConfig(
            discount=0.99, policy_cost=0.1, baseline_cost=1.0, entropy_cost=entropy, reconstruction_cost=1.0
        ),
        batch_size=32,
        unroll=unroll,
        bfloat16=True,
        device="auto",
        fit=FitConfig(steps=steps, report_every=100, evaluate_every=2000, checkpoint_every=2000),
    )
