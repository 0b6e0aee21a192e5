"""The rows that every study of Lampinen et al. 2021 has: the same run with one memory after the other.

    hcam                            reads every chunk (lite), or as many as the paper
    hcam, k = n                     chooses n chunks, fewer than there are when the question comes
    transformer-xl                  lite: hcam's window; paper: the paper's
    transformer-xl, full window     a window as long as the longest episode: about as many bytes as hcam's chunks
    lstm, memoryless

The lite scale has each of them twice: by reinforcement alone, and *imitated*, taught by a policy that the world
offers and helped as :class:`Lessons` says. Tables name teacher and helps beside the row.

A row's *reach* is layers x window of its core: what it sees without chunks and without having learned to carry
anything on. Where a test is marked ``beyond_window`` the lag (tasks/ruler.py) is at least four times that.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from recollect.cores.causal_transformer import CausalTransformerConfig
from recollect.cores.contract import CoreConfig
from recollect.cores.hcam import HierarchicalChunkMemoryConfig
from recollect.cores.transformer_xl.core import TransformerXLConfig
from recollect.recipes.base import Recipe, Run, Scale, Test
from recollect.tasks.worlds.contract import WorldConfig
from recollect.training.curriculum import CurriculumConfig
from recollect.training.frame import TrainerConfig
from recollect.training.imitation.teachers import ImitationConfig, TeacherConfig
from recollect.training.impala.loss import ReuseConfig
from recollect.training.impala.supervision import SupervisionConfig
from recollect.training.impala.trainer import ImpalaConfig
from recollect.training.optimizers import OptimizerConfig

CORE_ROWS = ("hcam", "transformer-xl", "lstm", "memoryless")
DOC = "Hierarchical Transformer Memory (Lampinen et al. 2021)"

Tests = Callable[[str, Scale], dict[str, Test]]
"""Where the run of a core is scored at a scale, by name."""


@dataclass(frozen=True, kw_only=True)
class Lessons:
    """How the rows that imitate are taught."""

    steps: int
    """Rollouts that are imitated on."""
    reinforced: int = 0
    """Rollouts of reinforcement behind them."""
    teacher: TeacherConfig = field(default_factory=lambda: TeacherConfig(acts=10, keeps=0.75))
    """Who is imitated. It acts in most rows: where a learner strays, memory decides less of what it is shown."""
    batch_size: int = 64
    """Episodes that are played at a time."""
    unroll: int | None = None
    """Steps of a rollout; None: as many as without a teacher."""
    reuse: ReuseConfig = field(default_factory=lambda: ReuseConfig(passes=2, minibatches=2))
    """What is made of a rollout: four updates."""
    learning_rate: float = 2e-3
    """At the start; it falls to 0 as a cosine."""
    label_cost: float = 0.0
    """Of naming what must be remembered, beside the divergence from the teacher; for worlds that name it."""
    attention_cost: float = 0.0
    """Of targets for attention, beside the divergence from the teacher; for cores that attend to the past."""
    inside: bool = False
    """Let the targets for attention name steps inside chunks, too."""
    decision_cost: float = 0.0
    """Of the divergence where a decision depends on the past, beside that at all steps."""
    gradients: bool = False
    """Let gradients into the chunks of hcam that a rollout completes: it should hold whole episodes."""
    curriculum: CurriculumConfig = field(default_factory=CurriculumConfig)
    """From easy to hard."""


class MakeAgent(Protocol):
    """The run of a core at a scale."""

    def __call__(self, core: str, scale: Scale = "lite") -> ImpalaConfig:
        """The config."""
        ...


def study(
    name: str,
    title: str,
    source: str,
    about: str,
    config: MakeAgent,
    few: Mapping[Scale, int],
    tests: Tests,
    lessons: Lessons,
) -> Recipe:
    """A recipe with the rows at the top of this file.

    Args:
        name: key.
        title: heading of its table.
        source: section of the paper.
        about: what is shown, and how the lite scale differs.
        config: the run of one core at one scale.
        few: k of the row that chooses, by scale.
        tests: where runs are scored, by name.
        lessons: of the lite rows that imitate.
    """

    def lite() -> list[Run]:
        alone = list(study_rows(config, "lite", few["lite"], tests))
        return [*alone, *(imitated(run, lessons) for run in alone)]

    return Recipe(
        name=name,
        title=title,
        source=f"{DOC}, {source}",
        about=about,
        config=config,
        runs={
            "lite": lite,
            "paper": lambda: list(study_rows(config, "paper", few["paper"], tests)),
        },
        seeds={"lite": 3, "paper": 3},
    )


def study_rows(config: MakeAgent, scale: Scale, few: int, tests: Tests) -> Iterator[Run]:
    """The rows at the top of this file, of one scale."""
    for core in CORE_ROWS:
        made, where = config(core, scale), tests(core, scale)
        memory = made.core
        yield row(core, core, made, scale, where)
        if isinstance(memory, HierarchicalChunkMemoryConfig):
            chooses = replace(memory, top_k=few)
            yield row(f"{core}, k = {few}", core, replace(made, core=chooses), scale, where)
        if isinstance(memory, TransformerXLConfig):
            sees_all = replace(memory, memory_len=longest_episode(where))
            unmarked = {name: replace(test, beyond_window=False) for name, test in where.items()}
            yield row(f"{core}, full window", core, replace(made, core=sees_all), scale, unmarked)


def imitated(run: Run, lessons: Lessons) -> Run:
    """The same row, taught."""
    config = run.config
    assert isinstance(config, ImpalaConfig)
    return row(f"{run.row}, imitated", run.core, taught(config, lessons), "lite", run.tests)


def taught(config: ImpalaConfig, lessons: Lessons) -> ImpalaConfig:
    """The run of an agent with a teacher, and with the helps that its core can take."""
    core = config.core
    supervision = SupervisionConfig(label_cost=lessons.label_cost, decision_cost=lessons.decision_cost, until=1.0)
    if isinstance(core, (HierarchicalChunkMemoryConfig, TransformerXLConfig, CausalTransformerConfig)):
        supervision = replace(supervision, attention_cost=lessons.attention_cost)
    if isinstance(core, HierarchicalChunkMemoryConfig):
        supervision = replace(supervision, inside=lessons.inside)
    if isinstance(core, HierarchicalChunkMemoryConfig) and lessons.gradients:
        core = replace(core, reading=replace(core.reading, chunk_gradients="call"))
    return replace(
        config,
        core=core,
        batch_size=lessons.batch_size,
        unroll=lessons.unroll or config.unroll,
        fit=replace(config.fit, steps=lessons.steps + lessons.reinforced, evaluate_every=40),
        optimizer=OptimizerConfig(
            algorithm="adam", learning_rate=lessons.learning_rate, schedule="cosine", warmup_steps=3, clip_norm=1.0
        ),
        loss=replace(
            config.loss,
            # What the value is wrong by at a hundred steps must not drown the three at which the teacher decides.
            baseline_cost=0.05,
            reuse=lessons.reuse,
            imitation=ImitationConfig(steps=lessons.steps, teacher=lessons.teacher),
            supervision=supervision,
        ),
        schedule=replace(config.schedule, curriculum=lessons.curriculum),
    )


def row(name: str, core: str, config: TrainerConfig, scale: Scale, tests: Mapping[str, Test]) -> Run:
    """A row, with a name for its files."""
    return Run(label=f"{label(name)}-{scale}", row=name, core=core, config=config, tests=tests)


def label(name: str) -> str:
    """A row's name as part of a file's: ``hcam, k = 4`` is ``hcam-k4``."""
    return name.replace(", ", "-").replace(" = ", "").replace(" ", "-")


def longest_episode(tests: Mapping[str, Test]) -> int:
    """Steps of the longest episode of the worlds that a run is scored in."""
    return max(test.where.spec.max_steps for test in tests.values() if isinstance(test.where, WorldConfig))


def reads_all(core: CoreConfig) -> CoreConfig:
    """An hcam that reads every chunk it has; other cores as they are."""
    return replace(core, top_k=core.num_chunks) if isinstance(core, HierarchicalChunkMemoryConfig) else core
