"""Hierarchical Transformer Memory (Lampinen et al. 2021): its study of memory for agents, as configs.

    htm-ballet            table 3: watch dances, then go to the dancer of the one that is named
    htm-generalisation    appendix D.1: train on 2, 4 and 6 dances, play 8
    htm-visual-match      section 3.4: a colour, apples, the door of that colour
    htm-words             section 3.3: names of new objects, distractions, a question
    htm-permanence        section 3.2: what is in which closed box (a 2-D analogue)
    htm-streets           section 3.4: one-shot navigation in a new neighbourhood (made-up cities)
    htm-t-maze            ours: the plainest memory there is, to see each core alone

``paper`` has table 1 of the paper (and our choice where it leaves one open): 4 layers, width 512, 8 heads, unroll
64 or 128, batch 32, Adam 2e-4 (streets 4e-4, inference 1e-4), costs 0.1 policy (streets 1), 1 baseline, 1e-3 or
1e-4 entropy, 1 reconstruction, discount 0.99. ``lite`` is small enough for two processor cores and ten minutes:
symbols instead of pixels, small networks, larger learning rates, easier levels. Worlds that were never released are
analogues, and are called so. The further parts of the study are ``htm_inference.py`` and ``htm_ablations.py``.
"""

from collections.abc import Callable
from dataclasses import replace

from recollect.recipes.agent_sizes import lite, lite_core, lite_spoken, lite_symbols, paper, paper_core
from recollect.recipes.base import MakeConfig, Recipe, Run, Scale, Test
from recollect.tasks.worlds.ballet.world import BalletConfig
from recollect.tasks.worlds.object_permanence import ObjectPermanenceConfig
from recollect.tasks.worlds.street_learn.world import HELD_OUT_CITIES, StreetLearnConfig
from recollect.tasks.worlds.t_maze import TMazeConfig
from recollect.tasks.worlds.visual_match import VisualMatchConfig
from recollect.tasks.worlds.word_learning import WordLearningConfig
from recollect.training.impala.trainer import EvaluationConfig, ImpalaConfig

LITE_BALLET = BalletConfig(
    dancers=(2,),
    delays=(1,),
    dances=("up_and_down", "left_and_right"),
    observation="tiles",
    max_steps=44,
    approach_reward=0.2,
)
"""Two dancers, one dance each of two, one right after the other; twelve steps to walk, and told where dancers are."""
CORE_ROWS = ("hcam", "transformer-xl", "lstm", "memoryless")


def ballet(core: str = "hcam", scale: Scale = "lite") -> ImpalaConfig:
    """Watch dances, go to the dancer of the one that is named (section 3.1).

    Args:
        core: key of any core.
        scale: ``lite`` (:data:`LITE_BALLET`) or ``paper`` (pixels, all six levels).
    """
    if scale == "paper":
        world = BalletConfig(dancers=(2, 4, 8), delays=(16, 48))
        memory = paper_core(core, chunk=32, top_k=8, steps=1024, unroll=64, extra=256)
        return paper(world, memory, unroll=64, entropy=1e-3, steps=100_000)
    limit = LITE_BALLET.limit(LITE_BALLET.delays[0])
    memory = lite_core(core, steps=limit, layers=1)
    return lite_symbols(LITE_BALLET, memory, steps=800, unroll=limit, discount=0.9)


def generalisation(core: str = "hcam", scale: Scale = "lite") -> ImpalaConfig:
    """Train on 2, 4 and 6 dances (lite: 1 and 2), to be played with 8 (lite: 3)."""
    if scale == "paper":
        return replace(ballet(core, scale), world=BalletConfig(dancers=(2, 4, 6), delays=(16, 48)))
    world = _lite_dances(1, 2)
    limit = world.limit(world.delays[0])
    return lite_spoken(world, lite_core(core, steps=limit, layers=1), steps=400, unroll=limit, discount=0.9)


def _lite_dances(*dancers: int) -> BalletConfig:
    dances = ("up_and_down", "left_and_right", "zee")
    return replace(LITE_BALLET, dancers=dancers, dances=dances, max_steps=62)


def visual_match(core: str = "hcam", scale: Scale = "lite") -> ImpalaConfig:
    """A colour, apples, the door of that colour (section 3.4; the published grid form of the DMLab level)."""
    if scale == "paper":
        memory = paper_core(core, chunk=16, top_k=16, steps=128, unroll=128, extra=256)
        config = paper(VisualMatchConfig(), memory, unroll=128, entropy=1e-4, steps=50_000)
        # A view of 5 x 5 pixels is small enough to be taken for a grid of symbols.
        encoders = replace(config.agent.encoders, kinds=(("observation", "impala-resnet"),))
        return replace(config, agent=replace(config.agent, encoders=encoders))
    world = VisualMatchConfig(
        cue_steps=8,
        distractor_steps=24,
        choice_steps=16,
        apple_rewards=(0.0, 0.0),
        target_reward=1.0,
        shuffle_doors=False,
    )
    # One layer with a window of 8: the cue has left it long before the doors come.
    memory = lite_core(core, steps=world.spec.max_steps, window=8, chunk=8, layers=1)
    # A rollout is an episode and its last observation: rows that begin together would else forget and decide together.
    return lite_symbols(world, memory, steps=400, unroll=world.spec.max_steps + 1, discount=0.97)


def words(core: str = "hcam", scale: Scale = "lite") -> ImpalaConfig:
    """Names of new objects, distractor phases, a question (section 3.3; a grid analogue)."""
    if scale == "paper":
        world = WordLearningConfig(distractor_phases=(0, 1, 2), observation="pixels")
        memory = paper_core(core, chunk=16, top_k=16, steps=1024, unroll=128, extra=512)
        return paper(world, memory, unroll=128, entropy=1e-4, steps=100_000)
    world = WordLearningConfig(
        num_objects=2,
        num_words=4,
        same_room=True,
        distractor_phases=(0, 1),
        side=5,
        view=7,
        discovery_steps=10,
        distractor_steps=6,
        test_steps=8,
    )
    memory = lite_core(core, steps=64, window=8, chunk=8, layers=1)
    return lite_spoken(world, memory, steps=500, unroll=world.spec.max_steps + 1, discount=0.9)


def permanence(core: str = "hcam", scale: Scale = "lite") -> ImpalaConfig:
    """What is in which closed box (section 3.2; a 2-D analogue)."""
    if scale == "paper":
        world = ObjectPermanenceConfig(delays=(0, 10, 20, 30), observation="pixels")
        memory = paper_core(core, chunk=16, top_k=8, steps=512, unroll=128, extra=512)
        return paper(world, memory, unroll=128, entropy=1e-4, steps=100_000)
    world = ObjectPermanenceConfig(num_boxes=2, num_shapes=2, jumps=1, delays=(0, 4), free_steps=28, side=7)
    memory = lite_core(core, steps=64, window=8, chunk=8, layers=1)
    return lite_spoken(world, memory, steps=200, unroll=world.spec.max_steps + 1, discount=0.95)


def streets(core: str = "hcam", scale: Scale = "lite") -> ImpalaConfig:
    """One-shot navigation in a neighbourhood that is new in every episode (section 3.4; made-up cities)."""
    if scale == "paper":
        memory = paper_core(core, chunk=4, top_k=32, steps=200, unroll=64, extra=256)
        if core == "hcam":
            memory = replace(memory, chunk_overlap=1, num_chunks=66)
        world = StreetLearnConfig(observation="rendered")
        config = paper(world, memory, unroll=64, entropy=1e-4, learning_rate=4e-4, steps=100_000)
        costs = replace(config.loss, policy_cost=1.0, baseline_cost=0.3, reconstruction_cost=0.3)
        return replace(config, loss=costs, evaluation=EvaluationConfig(greedy=False))
    memory = lite_core(core, steps=200, window=16, chunk=4, layers=1)
    config = lite_symbols(StreetLearnConfig(), memory, steps=250, unroll=50)
    # The score is a number of goals. Who knows little and takes the likeliest way at every corner goes in circles.
    fit = replace(config.fit, stop_score=None)
    return replace(config, fit=fit, evaluation=EvaluationConfig(greedy=False))


def t_maze(core: str = "hcam", scale: Scale = "lite", length: int = 100) -> ImpalaConfig:
    """A corridor of ``length`` steps between a cue and the turn that it names; ours, only lite."""
    if scale != "lite":
        raise ValueError(f"scale={scale!r}: the T-maze is not in the paper and has only lite")
    memory = lite_core(core, steps=length + 64, window=16)
    return lite(TMazeConfig(length=length, penalty=0.05), memory, steps=500, discount=0.95)


def short_t_maze(core: str = "hcam") -> ImpalaConfig:
    """A corridor of 20 steps, with room in the memory for one of 200.

    Two layers with windows of 8 reach 16 steps back, so that only the chunks hold the cue. All of them are read, and
    training goes on when the score is perfect: over a longer corridor many more chunks hold nothing.
    """
    config = t_maze(core, length=20)
    steps, chunk = 264, 8
    memory = lite_core(core, steps=steps, window=8, chunk=chunk, top_k=steps // chunk)
    return replace(config, core=memory, fit=replace(config.fit, steps=250, stop_score=None))


LEVELS = {  # dancers, delay: what the paper reports for each core (table 3)
    (2, 16): {"hcam": "0.998", "transformer-xl": "0.969", "lstm": "0.974"},
    (8, 16): {"hcam": "0.981", "transformer-xl": "0.657", "lstm": "0.252"},
    (8, 48): {"hcam": "0.972", "transformer-xl": "0.492", "lstm": "0.297"},
}
DELAY_LEVELS = {  # table 3, figures 4b and 4c: trained on varying delays, tested with none and with the longest
    "no delay": {"hcam": "0.967", "transformer-xl": "0.822", "lstm": "0.332"},
    "longest delay": {"hcam": "0.917", "transformer-xl": "0.461", "lstm": "0.348"},
}
LONGEST_ALONE = {"hcam": "0.829", "transformer-xl": "0.311"}
"""Figure 4d: trained on the longest delay alone."""
WORD_LEVELS = {
    "20 distractors": (20, 1, {"hcam": "0.955", "transformer-xl": "0.321", "lstm": "0.190"}),
    "4 episodes, 1 distractor each": (1, 4, {"hcam": "0.960", "transformer-xl": "0.344", "lstm": "0.061"}),
    "3 episodes, 5 distractors each": (5, 3, {"hcam": "0.917", "transformer-xl": "0.341", "lstm": "0.179"}),
}


def ballet_tests(core: str, scale: Scale) -> dict[str, Test]:
    """The levels of figure 3 and those between them."""
    if scale == "lite":
        return {}
    levels = [(dancers, delay) for dancers in (2, 4, 8) for delay in (16, 48)]
    return {
        f"{n} dances, delay {delay}": Test(
            where=BalletConfig(dancers=(n,), delays=(delay,)), paper=LEVELS.get((n, delay), {}).get(core, "-")
        )
        for n, delay in levels
    }


def _generalisation_tests(core: str, scale: Scale) -> dict[str, Test]:
    if scale == "paper":
        return {
            f"8 dances, delay {delay}": Test(where=BalletConfig(dancers=(8,), delays=(delay,))) for delay in (16, 48)
        }
    return {f"{n} dances": Test(where=_lite_dances(n)) for n in (1, 2, 3)}


def word_tests(core: str, scale: Scale) -> dict[str, Test]:
    """The levels of figure 5."""
    world = words(core, scale).world
    assert isinstance(world, WordLearningConfig)
    if scale == "paper":
        return {
            name: Test(where=replace(world, distractor_phases=(phases,), lessons=lessons), paper=paper.get(core, "-"))
            for name, (phases, lessons, paper) in WORD_LEVELS.items()
        }
    return {
        "0 distractors": Test(where=replace(world, distractor_phases=(0,))),
        "1 distractor": Test(where=replace(world, distractor_phases=(1,))),
        "4 distractors": Test(where=replace(world, distractor_phases=(4,))),
        "2 episodes": Test(where=replace(world, distractor_phases=(0,), lessons=2)),
    }


def _visual_match_tests(core: str, scale: Scale) -> dict[str, Test]:
    if scale == "lite":
        return {}
    return {"": Test(where=visual_match(core, scale).world, paper={"hcam": "0.970"}.get(core, "-"))}  # figure 6a


def permanence_tests(core: str, scale: Scale) -> dict[str, Test]:
    """The levels of figure 4."""
    if scale == "lite":
        return {}
    world = permanence(core, scale).world
    assert isinstance(world, ObjectPermanenceConfig)
    return {
        name: Test(where=replace(world, delays=(delay,)), paper=DELAY_LEVELS[name].get(core, "-"))
        for name, delay in (("no delay", min(world.delays)), ("longest delay", max(world.delays)))
    }


def _permanence_rows(scale: Scale) -> list[Run]:
    """Figure 4: varying delays, and at the paper's scale also the longest alone (4d)."""
    rows = _rows(permanence, permanence_tests, scale)
    for core, published in LONGEST_ALONE.items() if scale == "paper" else ():
        config = permanence(core, scale)
        assert isinstance(config.world, ObjectPermanenceConfig)
        world = replace(config.world, delays=(max(config.world.delays),))
        rows.append(
            Run(
                label=f"{core}-longest-alone-paper",
                row=f"{core}, trained on the longest delay alone",
                core=core,
                config=replace(config, world=world),
                paper=published,
            )
        )
    return rows


def _street_tests(core: str, scale: Scale) -> dict[str, Test]:
    world = streets(core, scale).world
    paper = {"hcam": "26.8", "transformer-xl": "19.9"}.get(core, "-") if scale == "paper" else "-"
    assert isinstance(world, StreetLearnConfig)
    return {"a city held out": Test(where=replace(world, cities=HELD_OUT_CITIES), paper=paper)}


def _t_maze_rows() -> list[Run]:
    runs = [Run(label=core, row=f"{core}, length 100", core=core, config=t_maze(core)) for core in CORE_ROWS]
    short, long = TMazeConfig(length=20), TMazeConfig(length=200)
    tests = {"length 20": Test(where=short), "length 200": Test(where=long)}
    row = "hcam trained on length 20"
    return [*runs, Run(label="hcam-short", row=row, core="hcam", config=short_t_maze(), tests=tests)]


def _rows(config: MakeConfig, tests: Callable[[str, Scale], dict[str, Test]], scale: Scale) -> list[Run]:
    """One row for every core."""
    return [
        Run(label=f"{core}-{scale}", row=core, core=core, config=config(core, scale), tests=tests(core, scale))
        for core in CORE_ROWS
    ]


def _recipe(
    name: str,
    title: str,
    source: str,
    about: str,
    config: MakeConfig,
    tests: Callable[[str, Scale], dict[str, Test]] = lambda core, scale: {},
) -> Recipe:
    def rows(scale: Scale) -> list[Run]:
        return _rows(config, tests, scale)

    return Recipe(
        name=name,
        title=title,
        source=source,
        about=about,
        config=config,
        runs={"lite": lambda: rows("lite"), "paper": lambda: rows("paper")},
        seeds={"lite": 3, "paper": 3},
    )


_DOC = "Hierarchical Transformer Memory (Lampinen et al. 2021)"
HTM_RECIPES = [
    Recipe(
        name="htm-t-maze",
        title="T-maze",
        source="ours, after Ni et al. (2023)",
        about="A corridor between a cue and the turn that it names.",
        config=t_maze,
        runs={"lite": _t_maze_rows},
        seeds={"lite": 3},
    ),
    _recipe(
        "htm-ballet",
        "Ballet",
        f"{_DOC}, table 3",
        "Share of episodes in which the agent goes to the right dancer. Lite: symbols instead of pixels, two dancers, "
        "two dances, no delay, and a reward for coming nearer to any dancer; windows of 16 steps.",
        ballet,
        ballet_tests,
    ),
    _recipe(
        "htm-generalisation",
        "Ballet with more dances than in training",
        f"{_DOC}, appendix D.1",
        "Trained on 2, 4 and 6 dances, played with 8. Lite: symbols, three kinds of dances, no delay, trained on 1 "
        "and 2, played with up to 3.",
        generalisation,
        _generalisation_tests,
    ),
    _recipe(
        "htm-visual-match",
        "Visual match",
        f"{_DOC}, section 3.4 and figure 6a",
        "Share of episodes with the right door; the published grid form. Lite: phases of 8, 24 and 16 steps, apples "
        "without reward, doors that keep their places; windows of 8 steps.",
        visual_match,
        _visual_match_tests,
    ),
    _recipe(
        "htm-words",
        "Rapid word learning",
        f"{_DOC}, table 3 and figure 5; a grid analogue",
        "Share of episodes in which the object that was named is lifted. Lite: two objects, four words, a test in the "
        "room where the names were heard; trained with no or one distractor; windows of 8 steps.",
        words,
        word_tests,
    ),
    Recipe(
        name="htm-permanence",
        title="Object permanence",
        source=f"{_DOC}, section 3.2 and figure 4; a 2-D analogue",
        about="Share of episodes in which the right box is chosen. Lite: two boxes, two shapes, one jump each, delays "
        "of 0 and 4 steps; windows of 8 steps.",
        config=permanence,
        runs={"lite": lambda: _permanence_rows("lite"), "paper": lambda: _permanence_rows("paper")},
        seeds={"lite": 3, "paper": 3},
    ),
    _recipe(
        "htm-streets",
        "One-shot StreetLearn",
        f"{_DOC}, figure 6c; made-up cities",
        "Goals reached in an episode of 200 steps, with actions drawn from the policy.",
        streets,
        _street_tests,
    ),
]
