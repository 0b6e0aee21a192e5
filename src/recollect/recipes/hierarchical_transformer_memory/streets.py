"""One-shot StreetLearn (section 3.4, figure 6c)."""

from dataclasses import replace

from recollect.cores.hcam import HierarchicalChunkMemoryConfig
from recollect.recipes.agent_sizes import lite_core, lite_symbols, paper, paper_core
from recollect.recipes.base import Scale, Test
from recollect.recipes.hierarchical_transformer_memory.rows import Lessons, reads_all, study
from recollect.tasks.worlds.street_learn.world import HELD_OUT_CITIES, StreetLearnConfig
from recollect.training.imitation.teachers import TeacherConfig
from recollect.training.impala.trainer import EvaluationConfig, ImpalaConfig

# A chunk shares a step with the next one, or every fourth move would have its two ends in different chunks.
CHUNK, OVERLAP = 4, 1
WIDTH = 128
"""An edge and a goal are two of 120 symbols, which 64 numbers hardly keep apart."""


def streets(core: str = "hcam", scale: Scale = "lite") -> ImpalaConfig:
    """One-shot navigation in a neighbourhood that is new in every episode; made-up cities.

    Args:
        core: key of any core.
        scale: ``lite`` or ``paper``.
    """
    # The score is a number of goals. Who knows little and takes the likeliest way at every corner goes in circles.
    drawn = EvaluationConfig(greedy=False)
    world = StreetLearnConfig()
    chunks = -(-world.steps // (CHUNK - OVERLAP))
    if scale == "paper":
        memory = paper_core(core, chunk=CHUNK, top_k=32, steps=world.steps, unroll=64, extra=256)
        if isinstance(memory, HierarchicalChunkMemoryConfig):
            memory = replace(memory, chunk_overlap=OVERLAP, num_chunks=chunks)
        rendered = replace(world, observation="rendered")
        config = paper(rendered, memory, unroll=64, entropy=1e-4, learning_rate=4e-4, steps=100_000)
        costs = replace(config.loss, policy_cost=1.0, baseline_cost=0.3, reconstruction_cost=0.3)
        return replace(config, loss=costs, evaluation=drawn)
    memory = replace(lite_core(core, steps=world.steps, window=8, chunk=CHUNK, layers=2), dim=WIDTH)  # type: ignore[call-arg]
    if isinstance(memory, HierarchicalChunkMemoryConfig):
        reading = replace(memory.reading, tied_start=True)  # where have I been here before?
        memory = reads_all(replace(memory, chunk_overlap=OVERLAP, num_chunks=chunks, reading=reading))
    config = lite_symbols(world, memory, steps=250, unroll=50)
    agent = replace(config.agent, width=WIDTH)
    return replace(config, agent=agent, fit=replace(config.fit, stop_score=None), evaluation=drawn)


def _tests(core: str, scale: Scale) -> dict[str, Test]:
    world = StreetLearnConfig(observation="rendered" if scale == "paper" else "one_hot", cities=HELD_OUT_CITIES)
    reported = {"hcam": "26.8", "transformer-xl": "19.9"}.get(core, "-") if scale == "paper" else "-"
    return {"a city held out": Test(where=world, paper=reported, beyond_window=scale == "lite")}


STREETS = study(
    "htm-streets",
    "One-shot StreetLearn",
    "figure 6c; made-up cities",
    "Goals reached in an episode of 200 steps, with actions drawn from the policy; chunks overlap by one step.",
    streets,
    {"lite": 16, "paper": 16},
    _tests,
    Lessons(
        steps=250,
        teacher=TeacherConfig(name="explorer", acts=20, keeps=0.5),
        attention_cost=0.1,
        gradients=True,
    ),
)
