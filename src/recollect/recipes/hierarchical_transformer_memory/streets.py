"""One-shot StreetLearn (section 3.4, figure 6c)."""

from dataclasses import replace

from recollect.cores.hcam import HierarchicalChunkMemoryConfig
from recollect.recipes.agent_sizes import lite_core, lite_symbols, paper, paper_core
from recollect.recipes.base import Scale, Test
from recollect.recipes.hierarchical_transformer_memory.rows import reads_all, study
from recollect.recipes.lessons import Lessons
from recollect.tasks.worlds.street_learn.world import HELD_OUT_CITIES, StreetLearnConfig
from recollect.training.imitation.teachers import TeacherConfig
from recollect.training.impala.loss import ReuseConfig
from recollect.training.impala.trainer import EvaluationConfig, ImpalaConfig

# A chunk shares a step with the next one, or every fourth move would have its two ends in different chunks.
CHUNK, OVERLAP = 4, 1
LITE_CHUNK = 8
"""Steps of a chunk at lite scale. Who finds the chunk that holds both the present edge and the goal can walk again what
it walked between them: within eight steps, and with moves that were never made before all others, that is worth 16
goals; within four 14 (docs/log.md)."""
WIDTH, SYMBOL = 128, 64
"""Of the memory, and of a symbol: one table for all edges, of which an observation shows three."""
LESSONS = Lessons(
    steps=300,
    teacher=TeacherConfig(name="explorer", acts=200, keeps=0.5),
    batch_size=32,
    reuse=ReuseConfig(passes=3, minibatches=4),
    learning_rate=1e-3,
    baseline_cost=0.0,  # returns of twenty: its gradient would be longer than that of all else
    label_cost=1.0,
    attention_cost=0.5,
    inside=True,
    gradients=True,
)


def streets(core: str = "hcam", scale: Scale = "lite") -> ImpalaConfig:
    """One-shot navigation in a neighbourhood that is new in every episode; made-up cities.

    Args:
        core: key of any core.
        scale: ``lite`` (``long`` is the same, for longer) or ``paper``.
    """
    # The score is a number of goals. Who knows little and takes the likeliest way at every corner goes in circles.
    drawn = EvaluationConfig(greedy=False)
    if scale == "paper":
        world = StreetLearnConfig(observation="rendered")
        memory = paper_core(core, chunk=CHUNK, top_k=32, steps=world.steps, unroll=64, extra=256)
        if isinstance(memory, HierarchicalChunkMemoryConfig):
            memory = replace(memory, chunk_overlap=OVERLAP, num_chunks=-(-world.steps // (CHUNK - OVERLAP)))
        config = paper(world, memory, unroll=64, entropy=1e-4, learning_rate=4e-4, steps=100_000)
        costs = replace(config.loss, policy_cost=1.0, baseline_cost=0.3, reconstruction_cost=0.3)
        return replace(config, loss=costs, evaluation=drawn)
    world = StreetLearnConfig(observation="symbols")
    memory = lite_core(core, steps=world.steps, window=8, chunk=LITE_CHUNK, layers=2)
    memory = replace(memory, dim=WIDTH)  # type: ignore[call-arg]
    if isinstance(memory, HierarchicalChunkMemoryConfig):
        reading = replace(memory.reading, tied_start=True)  # where have I been here before?
        chunks = -(-world.steps // (LITE_CHUNK - OVERLAP))
        memory = reads_all(replace(memory, chunk_overlap=OVERLAP, num_chunks=chunks, reading=reading))
    config = lite_symbols(world, memory, steps=250, unroll=world.spec.max_steps + 1)
    agent = replace(config.agent, width=WIDTH, encoders=replace(config.agent.encoders, tile_dim=SYMBOL))
    fit = replace(config.fit, stop_score=None)
    return replace(config, agent=agent, fit=fit, evaluation=drawn, batch_size=32)


def _tests(core: str, scale: Scale) -> dict[str, Test]:
    world = StreetLearnConfig(observation="rendered" if scale == "paper" else "symbols", cities=HELD_OUT_CITIES)
    reported = {"hcam": "26.8", "transformer-xl": "19.9"}.get(core, "-") if scale == "paper" else "-"
    return {"a city held out": Test(where=world, paper=reported, beyond_window=scale != "paper")}


STREETS = study(
    "htm-streets",
    "One-shot StreetLearn",
    "figure 6c; made-up cities",
    "Goals reached in an episode of 200 steps, with actions drawn from the policy; chunks overlap by one step. "
    "Lite: symbols that look alike as edge and as goal, and the edge before; windows of 8 steps.",
    streets,
    {"lite": 16, "paper": 16},
    _tests,
    LESSONS,
)
