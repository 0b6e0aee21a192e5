"""Paired associative inference (Lampinen et al. 2021, section 3.4 and appendix B.4).

The pairs are given as a memory: hcam has them as chunks that all layers share, the other cores read them as a stream;
each trial is a separate sequence that starts from this state. The mean of its outputs selects a choice.
``paper`` has table 1: 4 layers, width 512, chunks of 2, k 32, Adam 1e-4, 32 memories a step. ``lite`` has 6 chains of
items of 64 numbers, and two layers of width 128; its last rows are the paper's task, and pairs and questions in one
stream. There hcam is initialised to retrieve similar items and to pass them on (``tied_start``, ``copying_start``,
``identity_readout``): one layer has to look for what the layer before it has found, a match in all dimensions of the
items at once, which random weights learn the later the more dimensions there are, and in 128 not at all (docs/log.md).
Random items of fewer numbers are more similar to each other, and so are their projections.
Inputs are normalised at both scales: random vectors of length 1 are small beside the encoder's bias.
"""

from dataclasses import replace
from typing import Any

from recollect.agents.config import SequenceModelConfig
from recollect.cores.hcam import ChunkAttentionVariant, HierarchicalChunkMemoryConfig
from recollect.recipes.agent_sizes import lite_core, paper_core
from recollect.recipes.base import Recipe, Run, Scale, Test, require_scale
from recollect.tasks.streams.associative_inference import TYPES, AssociativeInference
from recollect.training import FitConfig, OptimizerConfig, SupervisedConfig

TASK = AssociativeInference(form="paper", trials=0)
"""16 chains of three items of 1000 numbers; all 48 trials of a memory at once."""
LITE_TASK = replace(TASK, num_chains=6, width=64)
LITE_DIM, STREAMED_DIM = 128, 64
CORES = ("hcam", "transformer-xl", "lstm", "memoryless")
PUBLISHED = {"AC": "0.975"}
"""Figure 6b and table 3, of chains of three."""


def inference(core: str = "hcam", scale: Scale = "lite", chain: int = 3) -> SupervisedConfig:
    """Return the run of a core in the form of appendix B.4.

    Args:
        core: key of any core.
        scale: ``lite`` (:data:`LITE_TASK`) or ``paper``.
        chain: items of a chain, 3 or 4.
    """
    require_scale(scale, "lite", "paper")
    task: AssociativeInference = replace(TASK if scale == "paper" else LITE_TASK, chain=chain)
    pairs, window = task.num_pairs, 2 * task.num_pairs + 2  # the whole sequence, for transformer-xl
    agent = SequenceModelConfig(
        embedding_dim=512 if scale == "paper" else LITE_DIM,
        readout="pointer",
        norm_inputs=True,
        given_memory="shared" if core == "hcam" else "streamed",
    )
    if scale == "paper":
        memory = paper_core(core, chunk=2, top_k=32, steps=2 * pairs, unroll=3, extra=window)
        optimizer = OptimizerConfig(algorithm="adam", learning_rate=1e-4)
        fit = FitConfig(steps=100_000, report_every=100, evaluate_every=2000, checkpoint_every=2000)
        return SupervisedConfig(
            task=task,
            core=memory,
            agent=agent,
            optimizer=optimizer,
            fit=fit,
            batch_size=32,
            bfloat16=True,
            device="auto",
        )
    memory = lite_core(core, steps=2 * pairs, window=2 if core == "hcam" else window, chunk=2, top_k=pairs, layers=2)
    memory = replace(memory, dim=LITE_DIM)  # type: ignore[call-arg]
    if isinstance(memory, HierarchicalChunkMemoryConfig):
        memory = replace(memory, reading=ChunkAttentionVariant(tied_start=True, copying_start=True))
        agent = replace(agent, identity_readout=True)
    return SupervisedConfig(
        task=task,
        core=memory,
        agent=agent,
        optimizer=OptimizerConfig(learning_rate=2e-3, schedule="cosine", warmup_steps=100),
        fit=FitConfig(steps=9000, report_every=100, evaluate_every=1000, checkpoint_every=1000),
        batch_size=16,
        evaluation_rows=64,
    )


def wide_inference(chain: int = 3) -> SupervisedConfig:
    """Return the run of the lite network on the paper's task: 16 chains of items of 1000 numbers."""
    config = inference("hcam", "lite", chain)
    core = config.core
    assert isinstance(core, HierarchicalChunkMemoryConfig)
    task = replace(TASK, chain=chain)
    return replace(
        config,
        task=task,
        core=replace(core, num_chunks=task.num_pairs, top_k=task.num_pairs),
        fit=replace(config.fit, steps=8000),
        evaluation_rows=32,
    )


def streamed_inference() -> SupervisedConfig:
    """Return the run with pairs and questions in one stream, answered at the last step of each question."""
    config = inference("hcam", "lite")
    core = config.core
    assert isinstance(core, HierarchicalChunkMemoryConfig)
    task = replace(LITE_TASK, form="streamed", trials=4)
    chunks = -(-task.spec.length // core.chunk_len)
    return replace(
        config,
        task=task,
        agent=replace(config.agent, given_memory="none", embedding_dim=STREAMED_DIM),
        core=replace(
            core,
            dim=STREAMED_DIM,
            num_chunks=chunks,
            top_k=chunks,
            reading=replace(core.reading, chunk_gradients="call"),
        ),
        batch_size=96,
        evaluation_rows=512,
        fit=replace(config.fit, steps=8000),
    )


def _tests(config: SupervisedConfig, paper: dict[str, str]) -> dict[str, Test]:
    task: Any = config.task
    # Questions of one stream give some information about each other.
    trials = 1 if task.form == "streamed" else 0
    return {
        kind: Test(where=replace(task, types=(kind,), trials=trials), paper=paper.get(kind, "-"))
        for kind in TYPES[task.chain]
    }


def _row(label: str, row: str, core: str, config: SupervisedConfig, paper: dict[str, str] | None = None) -> Run:
    return Run(
        label=label, row=row, core=core, config=config, tests=_tests(config, paper or {}), untrained=core == "hcam"
    )


def _lite_rows() -> list[Run]:
    rows = [_row(f"{core}-lite", core, core, inference(core)) for core in CORES]
    return [
        *rows,
        _row("hcam-chains-of-4-lite", "hcam, chains of 4", "hcam", inference("hcam", chain=4)),
        _row("hcam-streamed-lite", "hcam, one stream", "hcam", streamed_inference()),
        _row("hcam-16-chains-lite", "hcam, 16 chains of width 1000", "hcam", wide_inference()),
        _row("hcam-16-chains-of-4-lite", "hcam, 16 chains of 4 of width 1000", "hcam", wide_inference(4)),
    ]


def _paper_rows() -> list[Run]:
    rows = [
        _row(f"{core}-paper", core, core, inference(core, "paper"), PUBLISHED if core == "hcam" else None)
        for core in CORES
    ]
    return [*rows, _row("hcam-chains-of-4-paper", "hcam, chains of 4", "hcam", inference("hcam", "paper", chain=4))]


INFERENCE = Recipe(
    name="htm-inference",
    title="Paired associative inference",
    source="Hierarchical Transformer Memory (Lampinen et al. 2021), figure 6b and appendix B.4; random vectors for the "
    "published embeddings",
    about="Share of right answers, by type of question: AC needs two memories at once. Pairs are a given memory: "
    "chunks that all layers share for hcam, a stream for the others. Lite: 6 chains of 64 numbers an item where a row "
    "says nothing else, two layers of width 128 (64 for one stream).",
    config=inference,
    runs={"lite": _lite_rows, "paper": _paper_rows},
    seeds={"lite": 3, "paper": 3},
)
