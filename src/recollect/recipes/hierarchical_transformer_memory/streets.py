"""One-shot StreetLearn (section 3.4, figure 6c)."""

from dataclasses import replace

from recollect.cores.hcam import ChunkAttentionVariant, HierarchicalChunkMemoryConfig
from recollect.recipes.agent_sizes import lite_core, lite_symbols, paper, paper_core
from recollect.recipes.base import Scale, Test, require_scale
from recollect.recipes.hierarchical_transformer_memory.rows import read_all_chunks, study
from recollect.recipes.imitation_recipe import ImitationRecipe
from recollect.tasks.worlds.street_learn.world import HELD_OUT_CITIES, StreetLearnConfig
from recollect.training import CurriculumConfig, EvaluationConfig, ImpalaConfig, ReuseConfig, TeacherConfig

# Chunks overlap by a step, since otherwise every fourth move would have its two ends in different chunks.
CHUNK, OVERLAP = 4, 1
LITE_CHUNK, LITE_WINDOW = 1, 4
"""Steps of a chunk and of the window at lite scale. A step shows the edge before, the move and the edge after it, so
that a chunk is one move; the mean over several moves hides each of them (docs/log.md)."""
WIDTH, SYMBOL = 128, 64
"""Width of the memory, and of a symbol: one embedding for all edges, three of which are in an observation."""
IMITATION = ImitationRecipe(
    steps=1150,
    reinforced=350,
    teacher=TeacherConfig(name="explorer", acts=20, keeps=0.5),
    batch_size=32,
    # Without this limit the score rises from 12 to 16 goals, and falls to 7 when the teacher's pull ends (docs/log.md).
    reuse=ReuseConfig(passes=3, minibatches=4, kl_stop=0.03),
    learning_rate=1e-3,
    floor=0.2,
    warmup=10,
    label_cost=1.0,
    gradients=True,
    # Of 26 edges the goal is one move away in a sixth of the steps, of 7 in two fifths: that is where to compare edge
    # and goal is learned. The best mixture of moves that remember nothing finds 25, 12 and 9 goals there.
    curriculum=CurriculumConfig(
        field="num_junctions", values=(1, 2, 3), successes=(40, 20, 13), episodes=48, patience=300
    ),
)


def streets(core: str = "hcam", scale: Scale = "lite") -> ImpalaConfig:
    """Return the run of a core: one-shot navigation in a new neighbourhood per episode, of made-up cities.

    Args:
        core: key of any core.
        scale: ``lite`` (``long`` is the same, for longer) or ``paper``.
    """
    require_scale(scale, "lite", "long", "paper")
    # Sampled actions: the most likely ones of an agent with little knowledge lead in circles.
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
    memory = lite_core(core, steps=world.steps, window=LITE_WINDOW, chunk=LITE_CHUNK, layers=3, dim=WIDTH)
    if isinstance(memory, HierarchicalChunkMemoryConfig):
        # One head can look for where a move leads, another for moves that lead to the goal.
        memory = read_all_chunks(
            replace(memory, reading=ChunkAttentionVariant(relevance_heads=True, initial_scale=0.4))
        )
    # A goal is ten to twenty moves away.
    costs = {"discount": 0.97, "entropy_cost": 0.003, "norm_advantages": True}
    config = lite_symbols(world, memory, steps=250, unroll=world.steps + 1, **costs)
    agent = replace(
        config.agent,
        width=WIDTH,
        past_dim=SYMBOL,
        # Returns are about twenty: unscaled, the gradient of the value would dominate.
        norm_values=True,
        encoders=replace(config.agent.encoders, tile_dim=SYMBOL),
    )
    fit = replace(config.fit, stop_score=None)
    return replace(config, agent=agent, fit=fit, evaluation=drawn, batch_size=32)


def _tests(core: str, scale: Scale) -> dict[str, Test]:
    world = StreetLearnConfig(observation="rendered" if scale == "paper" else "symbols", cities=HELD_OUT_CITIES)
    reported = {"hcam": "26.8", "transformer-xl": "19.9"}.get(core, "-") if scale == "paper" else "-"
    return {"a city held out": Test(where=world, paper=reported, best=scale != "paper", beyond_window=scale != "paper")}


STREETS = study(
    "htm-streets",
    "One-shot StreetLearn",
    "figure 6c; made-up cities",
    "Goals reached in an episode of 200 steps, with actions drawn from the policy. Paper: chunks overlap by one step. "
    "Lite: symbols that look alike as edge and as goal, and the edge before; windows of 4 steps, chunks of one; the "
    "checkpoint of the best evaluation, which is in the cities of training.",
    streets,
    {"lite": 16, "paper": 16},
    _tests,
    IMITATION,
)
