from dataclasses import replace

import pytest
import torch

from recollect.state import leaves, take_rows
from recollect.tasks.worlds.contract import NEW_EPISODE
from recollect.tasks.worlds.tile_pictures import AGENT, WALL
from recollect.tasks.worlds.tile_rooms import EIGHT_WAYS
from recollect.tasks.worlds.word_learning import KNOWN, LEVELS, NEW_WORDS, WORDS, WordLearningConfig

TINY = WordLearningConfig(num_objects=2, side=5, view=3, discovery_steps=6, test_steps=6)
CASES = {
    **LEVELS,
    "tiny": TINY,
    "same room": WordLearningConfig(lessons=3, distractor_phases=(0, 1), num_words=20, same_room=True),
    "many": WordLearningConfig(num_objects=5, lessons=3, distractor_phases=(0, 2), side=9, discovery_steps=40),
}


def sentence(language):
    return " ".join(WORDS[int(word)] for word in language).strip()


def play(world, policy, steps, until_all_end=True):
    """All steps and truths of a run, of ``steps`` steps or until every row has ended an episode."""
    step = world.reset()
    history, done = [(step, world.truth())], step.is_last
    for _ in range(steps):
        step = world.step(policy(world))
        history.append((step, world.truth()))
        done = done | step.is_last
        if until_all_end and done.all():
            break
    return history


def random_policy(seed):
    generator = torch.Generator().manual_seed(seed)
    return lambda world: torch.randint(8, (world.batch_size,), generator=generator)


def oracle(world):
    return world.oracle()


def scores(history, rows):
    """Score and number of actions of every row's first episode."""
    score, length = torch.zeros(rows), torch.zeros(rows, dtype=torch.long)
    for t, (step, _) in enumerate(history):
        first = step.is_last & (length == 0)
        score, length = torch.where(first, step.score, score), torch.where(first, t, length)
    return score, length


@pytest.mark.parametrize("name", CASES)
def test_the_oracle_solves_every_level(name):
    config = CASES[name]
    b = 16
    world = config.build(b, seed=3)
    score, length = scores(play(world, oracle, config.spec.max_steps), b)
    assert (length > 0).all()
    assert score.mean() == config.spec.oracle == 1
    if name == "train":  # a discovery, up to two distractors and a test; far from all limits
        assert length.float().mean() < 20


def test_the_oracle_earns_every_reward():
    world = WordLearningConfig(distractor_phases=(2,), lessons=2).build(8, seed=1)
    earned, done = torch.zeros(8), torch.zeros(8, dtype=torch.bool)
    for step, _ in play(world, oracle, 200):
        earned += torch.where(done, 0, step.reward)
        done = done | step.is_last
    assert torch.allclose(earned, torch.tensor(2 * (3 * 0.1 + 2 * 0.1 + 1.0)))


def _guesser(generator):
    """Knows where things are and how to walk, but asks nobody what is what."""

    def policy(world):
        state = world.state
        if not hasattr(policy, "guess"):
            policy.guess = torch.randint(world.config.num_objects, state.script.asked.shape, generator=generator)
        test = torch.arange(state.script.asked.shape[1]) % (world.most + 2) == world.test
        asked = torch.where(test, policy.guess, state.script.asked)
        return world.plan(state._replace(script=state.script._replace(asked=asked)))

    return policy


@pytest.mark.parametrize("name", ["distractors-0", "lessons-2-distractors-5", "tiny"])
def test_a_guesser_is_at_chance(name):
    config, b = CASES[name], 2048 if name != "lessons-2-distractors-5" else 512
    world = config.build(b, seed=5)
    steps = min(config.spec.max_steps, 70)
    score, length = scores(play(world, _guesser(torch.Generator().manual_seed(0)), steps), b)
    assert (length > 0).all()
    sigma = (config.spec.chance * (1 - config.spec.chance) / b) ** 0.5
    assert abs(score.mean() - config.spec.chance) < 4 * sigma


class Literal:
    """One row, by the rules at the top of the file, with plain numbers."""

    def __init__(self, config, script):
        self.config, self.clock = config, 0
        self.looks, self.words = script.looks.tolist(), script.words.tolist()
        self.start, self.places, self.asked = script.start.tolist(), script.places.tolist(), script.asked.tolist()
        self.distractors, self.about = int(script.distractors), int(script.about)
        self.rooms = max(config.distractor_phases) + 2
        self.heard, self.lesson = {}, 0
        self.enter("discovery", 0)

    def enter(self, kind, phase):
        self.kind, self.phase, self.elapsed = kind, phase, 0
        self.room = self.lesson * self.rooms + (self.rooms - 1 if kind == "test" else phase)
        self.agent, self.on, self.alone = self.start[self.room], None, 0

    def names_known(self):
        return all((self.lesson, i) in self.heard for i in range(self.config.num_objects))

    def go_on(self):
        if self.phase < self.distractors:
            self.enter("distractor", self.phase + 1)
        else:
            self.enter("test", None)
        self.alone = self.config.pause_steps

    def step(self, action):
        """Reward, terminated and score."""
        c, swallowed = self.config, self.kind == "discovery" and self.names_known()
        self.clock += 1
        if self.alone:
            self.alone -= 1
            return 0.0, False, 0.0
        self.elapsed += 1
        if swallowed:
            self.go_on()
            return 0.0, False, 0.0
        down, right = EIGHT_WAYS[action]
        y, x = self.agent // c.side + down, self.agent % c.side + right
        if 0 <= y < c.side and 0 <= x < c.side:
            self.agent = y * c.side + x
        self.on = self.places[self.room].index(self.agent) if self.agent in self.places[self.room] else None
        return getattr(self, self.kind)()

    def discovery(self):
        if self.elapsed == self.config.discovery_steps:
            self.go_on()
            return 0.0, False, 0.0
        new = self.on is not None and (self.lesson, self.on) not in self.heard
        if self.on is not None:
            self.heard[self.lesson, self.on] = self.clock
        return self.config.discovery_reward * new, False, 0.0

    def distractor(self):
        right = self.on == self.asked[self.room]
        if right or self.elapsed == self.config.distractor_steps:
            self.go_on()
        return self.config.distractor_reward * right, False, 0.0

    def test(self):
        if self.on is None:
            return 0.0, False, 0.0
        right = float(self.on == self.asked[self.room])
        if self.lesson == self.config.lessons - 1:
            return right, True, right
        self.lesson += 1
        self.enter("discovery", 0)
        return right, False, 0.0

    def topic(self):
        last = self.kind == "test" and self.lesson == self.config.lessons - 1 and self.config.lessons > 1
        return self.about if last else self.lesson

    def says(self):
        if self.alone:
            return ""
        if self.kind == "discovery":
            return "" if self.on is None else f"this is a {WORDS[self.words[self.lesson][self.on]]}"
        asked = self.asked[self.room]
        return "lift the " + (KNOWN[asked] if self.kind == "distractor" else WORDS[self.words[self.topic()][asked]])

    def decisive(self):
        decides = self.kind == "test" and not self.alone
        return self.heard.get((self.topic(), self.asked[self.room]), -1) if decides else -1

    def event(self):
        if self.kind == "discovery" and self.on is not None:
            return f"name of object {1 + self.lesson * self.config.num_objects + self.on}"
        if self.elapsed or self.alone:
            return None
        begins = {"distractor": f"distraction {self.phase}", "discovery": NEW_EPISODE if self.lesson else None}
        return begins.get(self.kind)


@pytest.mark.parametrize(
    "config",
    [
        WordLearningConfig(distractor_phases=(0, 1, 3), lessons=3, discovery_steps=20, distractor_steps=9),
        WordLearningConfig(num_objects=4, lessons=2, distractor_phases=(1,), test_steps=9),
        TINY,
        replace(TINY, pause_steps=3, distractor_phases=(0, 2), lessons=2),
    ],
)
def test_it_is_the_same_as_plain_rules(config):
    b = 6
    world = config.build(b, seed=7)
    world.reset()
    rows = [Literal(config, take_rows(world.state.script, i)) for i in range(b)]
    wander, ended, timed_out = random_policy(1), 0, 0
    for t in range(160):
        actions = torch.where(torch.arange(b) % 2 == t // 40 % 2, world.oracle(), wander(world))
        step, truth = world.step(actions), world.truth()
        for i, row in enumerate(rows):
            if step.is_first[i]:
                rows[i] = row = Literal(config, take_rows(world.state.script, i))
                reward, terminated, score = 0.0, False, 0.0
            else:
                reward, terminated, score = row.step(int(actions[i]))
            truncated = not terminated and row.clock == config.spec.max_steps
            assert step.reward[i] == pytest.approx(reward)
            assert (step.terminated[i], step.truncated[i]) == (terminated, truncated)
            assert step.score[i] == score
            assert sentence(step.observation["language"][i]) == row.says()
            assert truth.start[i] == (-1 if terminated or truncated else row.decisive())
            assert truth.event[i] == (-1 if row.event() is None else config.spec.events.index(row.event()))
            alone = step.observation["image"][i].flatten(0, 1)[:, 1].sum() == 0  # no shape to be seen
            assert not row.alone or alone
            ended, timed_out = ended + terminated, timed_out + truncated
    assert ended > 5


def test_words_and_looks_are_fresh_and_independent():
    config = WordLearningConfig(lessons=4, num_objects=3)
    script = config.build(3000, seed=0).begin(3000).script
    for values in (script.looks, script.words):
        ordered = values.flatten(1).sort(1).values
        assert (ordered.diff(dim=1) > 0).all(), "nothing is dealt twice in an episode"
    words = script.words[:, 0, 0] - (len(WORDS) - len(NEW_WORDS))
    looks = script.looks[:, 0, 0]
    counts = torch.bincount(words, minlength=len(NEW_WORDS)).float()
    expected = 3000 / len(NEW_WORDS)
    assert counts.min() > 0 and ((counts - expected).square() / expected).sum() < 150, "words are uniform (chi squared)"
    half = torch.stack((words < len(NEW_WORDS) // 2, looks < 60)).double()
    assert abs(torch.corrcoef(half)[0, 1]) < 0.07, "what it is called does not depend on how it looks"
    assert (script.about < 3).all() and (torch.bincount(script.about) > 800).all()
    assert (torch.bincount(script.asked[:, -1]) > 800).all()


def test_rooms_are_fresh_and_nothing_touches():
    config = WordLearningConfig(distractor_phases=(2,), side=7)
    script = config.build(500, seed=0).begin(500).script
    cells = torch.cat((script.start[..., None], script.places), -1)
    y, x = cells // 7, cells % 7
    assert (y % 2 == 1).all() and (x % 2 == 1).all()
    assert (cells.sort(-1).values.diff(dim=-1) > 0).all()
    assert (script.places[:, 0] != script.places[:, -1]).any(1).float().mean() > 0.95


def test_distractors_change_nothing_that_was_learned():
    """A room's objects and the question of the test are those of the discovery, whatever lies between."""
    world = WordLearningConfig(distractor_phases=(20,)).build(8, seed=2)
    world.reset()
    script = world.state.script
    said = [set() for _ in range(8)]
    for t in range(300):
        step, truth = world.step(world.oracle()), world.truth()
        before = world.state.script
        assert t > 30 or all(torch.equal(a, b) for a, b in zip(leaves(script), leaves(before), strict=True))
        for i, heard in enumerate(said):
            text = sentence(step.observation["language"][i])
            if text.startswith("this"):
                heard.add(text.split()[-1])
            if truth.start[i] >= 0:
                assert text.split()[-1] in heard and len(heard) == 3
        if step.is_last.any():
            break
    assert step.is_last.any()


def test_a_wrong_distractor_changes_nothing_and_a_slow_one_ends():
    config = WordLearningConfig(distractor_phases=(1,), distractor_steps=12, lessons=1)
    world = config.build(32, seed=4)
    world.reset()
    while (world.state.phase == 0).any():
        world.step(world.oracle())
    world = config.build(32, seed=4)
    world.reset()
    entered = torch.zeros(32, dtype=torch.long)
    left = torch.zeros(32, dtype=torch.long)
    paid = torch.zeros(32)
    for _ in range(45):
        state = world.state
        wrong = state._replace(script=state.script._replace(asked=(state.script.asked + 1) % 3))
        actions = torch.where(state.phase == 1, world.plan(wrong), world.oracle())
        phase = state.phase
        step = world.step(actions)
        entered += world.state.phase == 1
        left += (phase == 1) & (world.state.phase == 2)
        paid += torch.where(phase == 1, step.reward, 0)
        if (left > 0).all():
            break
    assert (left == 1).all() and (paid == 0).all()
    assert (entered == 12).all()


def test_the_last_name_is_to_be_seen_and_heard_before_the_room_changes():
    world = WordLearningConfig(discovery_reward=0.25).build(64, seed=6)
    named = torch.zeros(64)
    for step, _ in play(world, oracle, 9, until_all_end=False):
        news = step.reward == 0.25
        named += news
        image, language = step.observation.values()
        assert (language[news, 0] == WORDS.index("this")).all() and (language[news, 3] > 0).all()
        assert (image[news, 4, 4, 1:] > 0).all(), "the named object is under the agent"
        assert (named <= 3).all()
        left = step.observation["language"][:, 0] == WORDS.index("lift")
        assert (named[left] == 3).all()
    assert left.float().mean() > 0.5


def test_the_last_question_is_about_an_earlier_lesson_among_its_own_objects():
    world = LEVELS["lessons-4-distractors-1"].build(64, seed=9)
    world.reset()
    script, checked = world.state.script, 0
    for _ in range(160):
        step, truth = world.step(world.oracle()), world.truth()
        last = (world.state.lesson == 3) & (world.state.phase == world.test) & ~world.over & ~step.is_first
        for i in last.nonzero()[:, 0].tolist():
            about = int(script.about[i])
            word = int(step.observation["language"][i, 2])
            assert about < 3 and word in script.words[i, about].tolist()
            seen = step.observation["image"][i][..., 1]
            shapes = [shape - 1 for shape in seen[seen > 0].tolist()]
            assert shapes and set(shapes) <= {look // 10 for look in script.looks[i, about].tolist()}
            assert 0 < truth.start[i] < world.clock[i]
            checked += 1
        if (world.state.script.about != script.about).any():
            break  # new episodes
    assert checked > 10


def test_in_the_same_room_the_objects_of_a_test_stand_where_their_names_were_heard():
    config = WordLearningConfig(lessons=3, distractor_phases=(2,), num_words=9, same_room=True)
    world = config.build(64, seed=5)
    world.reset()
    script, phases = world.state.script, 4
    assert (script.start == config.side**2 // 2).all()  # the middle, where no object stands
    assert (script.places != config.side**2 // 2).all()
    assert script.words.max() - script.words.min() == 8
    tests = script.places[:, 3::phases]
    first = script.places[:, ::phases]
    assert torch.equal(tests[:, :2], first[:, :2])
    assert torch.equal(tests[:, 2], first[torch.arange(64), script.about])
    assert set(script.about.tolist()) == {0, 1}
    between = script.places[:, 1::phases]
    assert (between != first).any(-1).float().mean() > 0.9


def test_what_is_in_reach_is_to_be_seen():
    """The tile in the middle is the agent's, with the object it stands on; objects are where the script says."""
    config = WordLearningConfig(view=13, distractor_phases=(1,))
    world = config.build(12, seed=8)
    world.reset()
    for _ in range(12):
        step = world.step(world.oracle())
        image, state = step.observation["image"], world.state
        places = state.script.places[world.rows, world._room(state)]
        assert (image[:, 6, 6, 0] == AGENT).all() and (image[..., 0] == AGENT).sum() == 12
        for i in range(12):
            found = {(y - 6, x - 6) for y, x in image[i, ..., 1].nonzero().tolist()}
            agent = int(state.agent[i])
            assert found == {(c // 7 - agent // 7, c % 7 - agent % 7) for c in places[i].tolist()}
        assert ((image[..., 0] != WALL).sum((1, 2)) == 49).all()


def test_pixels_show_the_same_as_tiles():
    tiles = WordLearningConfig(distractor_phases=(1,)).build(8, seed=8)
    pixels = WordLearningConfig(distractor_phases=(1,), observation="pixels").build(8, seed=8)
    one, two = tiles.reset(), pixels.reset()
    for _ in range(15):
        assert torch.equal(one.observation["language"], two.observation["language"])
        assert two.observation["image"].shape == (8, 81, 81, 3) and two.observation["image"].dtype == torch.uint8
        blocks = two.observation["image"].unflatten(1, (9, 9)).unflatten(3, (9, 9)).transpose(2, 3).flatten(3)
        for i in range(8):
            pairs = {
                (tuple(a), tuple(b))
                for a, b in zip(
                    one.observation["image"][i].flatten(0, 1).tolist(), blocks[i].flatten(0, 1).tolist(), strict=True
                )
            }
            assert len({a for a, _ in pairs}) == len({b for _, b in pairs}) == len(pairs), "one picture a tile"
        assert (tiles.render(3) == two.observation["image"][3].numpy()).all()
        actions = tiles.oracle()
        one, two = tiles.step(actions), pixels.step(actions)


def test_an_episode_that_is_cut_in_an_earlier_test_has_no_score():
    """Everyone waits in the first test, and lifts the right thing with the last action that there is time for."""
    config = WordLearningConfig(lessons=2)
    world = config.build(16, seed=0)
    world.reset()
    for _ in range(config.spec.max_steps):
        state = world._present()
        room = world._room(state)
        places = state.script.places[world.rows, room]
        asked = places.gather(1, state.script.asked[world.rows, room, None])[:, 0]
        down, right = ((a - b).abs() for a, b in zip(_at(state.agent), _at(asked), strict=True))
        waits = (state.phase == world.test) & (torch.maximum(down, right) < config.spec.max_steps - world.clock)
        lifts = (world.moves[state.agent][..., None] == places[:, None]).any(-1)
        step = world.step(torch.where(waits, lifts.long().argmin(1), world.oracle()))
    assert step.truncated.all() and (world._present().lesson <= 1).all()
    assert (step.reward >= 1).sum() > 8 and not step.score.any()


def _at(cell, side=7):
    return cell // side, cell % side


@pytest.mark.parametrize(
    ("config", "heard"),
    [
        (LEVELS["train"], 2),
        (WordLearningConfig(same_room=True), 2),
        (WordLearningConfig(same_room=True, side=9, discovery_steps=20), 1),
    ],
)
def test_time_limits_and_spans(config, heard):
    world = config.build(64, seed=0)
    history = play(world, random_policy(3), 3 * config.spec.max_steps, until_all_end=False)
    clock = torch.full((64,), -1)
    earliest, longest = config.spec.max_steps, 0
    for step, truth in history:
        clock = torch.where(step.is_first, 0, clock + 1)
        assert not (step.terminated & step.truncated).any()
        assert (clock <= config.spec.max_steps).all()
        depends = truth.start >= 0
        assert (truth.stop[depends] == truth.start[depends] + 1).all()
        if depends.any():
            earliest = min(earliest, int(truth.start[depends].min()))
            longest = max(longest, int((clock - truth.start)[depends].max()))
    assert earliest == heard
    assert longest <= config.spec.memory_span == config.spec.max_steps - 1 - heard


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"side": 6}, "side=6"),
        ({"observation": "words"}, "observation="),
        ({"view": 4}, "view=4"),
        ({"num_objects": 9}, "num_objects=9"),
        ({"distractor_phases": ()}, "distractor_phases"),
        ({"distractor_phases": (-1,)}, "distractor_phases"),
        ({"lessons": 99}, "lessons=99"),
        ({"num_words": 2}, r"num_words=2: give 3\.\.96: each of num_objects=3"),
        ({"lessons": 3, "num_words": 8}, "lessons=3"),
        ({"discovery_steps": 5}, "discovery_steps=5"),
        ({"test_steps": 1}, "test_steps=1"),
        ({"pause_steps": -1}, "pause_steps=-1"),
    ],
)
def test_mistakes_are_named(change, message):
    with pytest.raises(ValueError, match=message):
        WordLearningConfig(**change)
