"""What a Gymnasium environment says of memory in its info, and draws of itself: in worlds, films and the explorer."""

import warnings

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from recollect.agents.config import ActorCriticConfig
from recollect.cores import CORES
from recollect.evaluation.agent_videos import episode_frames
from recollect.interpret.episodes import record_episode
from recollect.interpret.recall import decisions
from recollect.tasks.gymnasium.rows import BrokenEnvironmentError
from recollect.tasks.gymnasium.worlds import GymnasiumConfig

HERE = __name__
LENGTH = 6
COLOUR = (200, 30, 60)


class Quiz(gymnasium.Env):
    """Shows a cue at steps 1 and 2, and asks for it at the last step."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012
    observation_space = spaces.Box(0, 1, (2,))
    action_space = spaces.Discrete(2)

    def __init__(self, render_mode=None, wrong=None):
        self.render_mode, self.wrong = render_mode, wrong

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.clock = 0
        return self.observe()

    def step(self, action):
        self.clock += 1
        observation, info = self.observe()
        return observation, 0.0, self.clock == LENGTH, False, info

    def observe(self):
        says = {}
        if 1 <= self.clock < 3:
            says = {"event": "cue"}
        elif self.clock >= LENGTH - 2:
            says = {"event": "question", "depends_on": np.array([1, 3])}
        if self.wrong is not None and self.clock == 2:
            says = self.wrong
        return np.array([self.clock / LENGTH, 0], np.float32), {"recollect": says}

    def render(self):
        picture = np.zeros((480, 640, 3), np.uint8)
        picture[:, : 640 * self.clock // LENGTH] = COLOUR
        return picture


class Undrawable(Quiz):
    def render(self):
        raise ImportError("no module named pygame")


class Silent(Quiz):
    metadata = {"render_modes": ["human"]}  # noqa: RUF012

    def observe(self):
        return super().observe()[0], {}


def agent(config):
    torch.manual_seed(0)
    core = CORES["hcam"](dim=8, num_heads=2, memory_len=2, chunk_len=2, num_chunks=4, top_k=1, num_layers=1)
    return ActorCriticConfig(width=8).build(core, config.spec.observation_space, config.spec.action_space).eval()


@pytest.mark.parametrize("more", [{}, {"processes": 2}, {"stack": 2}])
def test_the_truth_is_what_the_environments_say(more):
    world = GymnasiumConfig(id=f"{HERE}:Quiz", **more).build(3, seed=0)
    try:
        step, clock = world.reset(), 0
        for _ in range(2 * LENGTH + 2):
            truth = world.truth()
            expected = "cue" if 1 <= clock < 3 else "question" if clock >= LENGTH - 2 else None
            names = [world.spec.events[number] if number >= 0 else None for number in truth.event.tolist()]
            assert names == [expected] * 3
            decides = LENGTH - 2 <= clock < LENGTH  # nothing is decided at the last observation
            assert truth.start.tolist() == [1 if decides else -1] * 3
            assert truth.stop.tolist() == [3 if decides else -1] * 3
            step = world.step(torch.zeros(3, dtype=torch.long))
            clock = 0 if bool(step.is_first[0]) else clock + 1
        assert world.spec.events == ("cue", "question")
    finally:
        world.close()


def test_an_environment_that_says_nothing_has_no_truth():
    world = GymnasiumConfig(id=f"{HERE}:Silent").build(2)
    world.reset()
    world.step(torch.zeros(2, dtype=torch.long))
    assert world.truth() is None and world.spec.events == ()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("cue", r"info\['recollect'\] is 'cue'"),
        ({"evnt": "cue"}, r"give \{'event': name, 'depends_on': \[a, b\]\}"),
        ({"event": 3}, r"\['event'\] is 3: give a name"),
        ({"depends_on": [2, 2]}, r"\['depends_on'\] is \[2, 2\]: give \[a, b\]"),
        ({"depends_on": [0.5, 2]}, "give \\[a, b\\] for the steps a .. b - 1"),
        ({"depends_on": [1, 4]}, r"\[1, 4\] at step 2: a decision depends on steps of this episode up to the present"),
    ],
)
def test_what_is_said_in_another_form_is_named_with_its_row(wrong, said):
    world = GymnasiumConfig(id=f"{HERE}:Quiz", options={"wrong": wrong}).build(2)
    world.reset()
    with pytest.raises(BrokenEnvironmentError, match=rf"row \d of {HERE}:Quiz.*{said}"):
        for _ in range(3):
            world.step(torch.zeros(2, dtype=torch.long))


def test_the_explorer_has_events_decisions_and_the_environments_pictures():
    config = GymnasiumConfig(id=f"{HERE}:Quiz")
    episode = record_episode(agent(config), config, seed=1)
    assert [(event.kind, event.t, event.t1) for event in episode.blocks] == [
        ("cue", 1, 3),
        ("question", LENGTH - 2, LENGTH + 1),
    ]
    assert [(pair.query, pair.key) for pair in episode.pairs] == [((LENGTH - 2, LENGTH), (1, 3))]
    assert [decision.t for decision in decisions(episode)] == [LENGTH - 2, LENGTH - 1]
    assert episode.frames.shape == (LENGTH + 1, 160, 213, 3), "a third of 480 x 640"
    for clock, frame in enumerate(episode.frames):
        assert frame[80, 210].tolist() == ([0, 0, 0] if clock < LENGTH else list(COLOUR))
    again = episode.rerun_from(2)
    assert again.events == episode.events and np.array_equal(again.frames, episode.frames)


def test_films_show_what_the_environment_draws():
    config = GymnasiumConfig(id=f"{HERE}:Quiz")
    frames = list(episode_frames(agent(config), config, episodes=1))
    assert frames[-1].picture.shape == (480, 640, 3)
    assert frames[3].picture[0, :310].tolist() == [list(COLOUR)] * 310
    assert not frames[3].picture[0, 330:].any()


def test_an_environment_that_cannot_draw_shows_its_observations_and_says_why():
    config = GymnasiumConfig(id=f"{HERE}:Undrawable")
    with pytest.warns(RuntimeWarning, match="cannot draw itself .*no module named pygame.*its observations are shown"):
        assert config.with_rendering() is config
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        silent = GymnasiumConfig(id=f"{HERE}:Silent")
        assert silent.with_rendering() is silent


def test_atari_keeps_the_frames_of_its_vector_form():
    pytest.importorskip("ale_py")
    config = GymnasiumConfig(id="ALE/Pong-v5")
    assert config.with_rendering() is config
