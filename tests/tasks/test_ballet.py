import dataclasses
import itertools
import json
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch

from recollect.tasks.worlds.ballet.dances import ALIKE, DANCES, DIRECTIONS, HOMES, SIDE, cell_after, is_wall
from recollect.tasks.worlds.ballet.levels import BalletLevel, Dancer
from recollect.tasks.worlds.ballet.render import COLOURS, SHAPES, shape_masks
from recollect.tasks.worlds.ballet.world import WORDS, Ballet, BalletConfig

GOLDEN = Path(__file__).parents[1] / "golden"
N, NE, E, SE, S, SW, W, NW = range(8)
WATCH = WORDS.index("watch")
KINDS = "black", "wall", "agent", "dancer"


def golden_episodes():
    for file in sorted(GOLDEN.glob("ballet_*.npz")):
        data = np.load(file)
        for episode in sorted({name.split("/")[0] for name in data.files if "/" in name}):
            yield pytest.param(file, episode, id=f"{file.stem}-{episode}")


def golden_level(data, episode, delay):
    names = zip(*(data[f"{episode}/{name}"] for name in ("positions", "motions", "shapes", "colors")), strict=True)
    dancers = tuple(Dancer((int(y), int(x)), str(m), str(s), str(c)) for (y, x), m, s, c in names)
    return BalletLevel(dancers=dancers, target=int(data[f"{episode}/target_index"]), delay=delay)


def actions(*moves):
    return torch.tensor(moves)


def pair(homes=((2, 8), (8, 2)), target=0, delay=16, dances=("zee", "circle_cw")):
    cast = (Dancer(homes[0], dances[0], "tee", "red"), Dancer(homes[1], dances[1], "h", "blue"))
    return BalletLevel(dancers=cast, target=target, delay=delay)


def staged(level, **fields):
    config = BalletConfig(dancers=(len(level.dancers),), delays=(level.delay,), **{"observation": "tiles", **fields})
    world = config.build(1)
    return world, world.stage([level])


def to_the_cue(world, step, action=N):
    while step.observation["language"][0, 0] == WATCH:
        step = world.step(torch.full((world.batch_size,), action))
    return step


@pytest.mark.parametrize("file, episode", list(golden_episodes()))
def test_every_observation_is_the_official_one(file, episode):
    data = np.load(file)
    delay = json.loads(data["meta_json"].item())["dance_delay"]
    level = golden_level(data, episode, delay)
    world = BalletConfig(dancers=(len(level.dancers),), delays=(delay,)).build(1)
    take = {name: data[f"{episode}/{name}"] for name in ("actions", "language", "crc32", "reward", "step_type")}
    frames = dict(zip(data[f"{episode}/frame_index"].tolist(), data[f"{episode}/frames"], strict=True))

    step = world.stage([level])
    for t in range(len(take["crc32"])):
        if t:
            step = world.step(torch.from_numpy(take["actions"][t - 1 : t].astype(np.int64)))
            assert step.reward.item() == take["reward"][t]
        image = step.observation["image"][0].numpy()
        assert zlib.crc32(image.tobytes()) == take["crc32"][t], f"observation {t}"
        if t in frames:
            assert np.array_equal(image, frames[t])
        assert WORDS[step.observation["language"].item()] == take["language"][t]
        ended = take["step_type"][t] == 2
        assert step.is_first.item() == (take["step_type"][t] == 0)
        assert step.terminated.item() == (ended and data[f"{episode}/discount"][t] == 0)
        assert step.truncated.item() == (ended and data[f"{episode}/discount"][t] == 1)
        state = world.state
        assert divmod(state.agent.item(), SIDE) == tuple(data[f"{episode}/agent_pos"][t])
        cells = [divmod(cell, SIDE) for cell in world.dancer_cells(state)[0].tolist()]
        assert np.array_equal(cells, data[f"{episode}/dancer_pos"][t])
    assert step.is_last.item()


def test_uint8_over_255_is_the_float_image_of_the_templates():
    for colour in COLOURS.values():
        template = shape_masks()[0].numpy()[..., None] * np.array(colour)  # float64 templates put into float32 images
        official = template.astype(np.float32)
        official /= 255.0
        ours = (shape_masks()[0, ..., None] * torch.tensor(colour, dtype=torch.uint8)) / 255
        assert np.array_equal(ours.numpy(), official)


@pytest.mark.parametrize("name", DANCES)
def test_dances_stay_close_and_come_home(name):
    place = np.zeros(2, dtype=int)
    seen = []
    for move in DANCES[name]:
        place = place + DIRECTIONS[move]
        seen.append(tuple(place.tolist()))
        assert np.abs(place).max() <= 1
    assert len(seen) == 16 and not place.any()

    other = next(dance for dance in DANCES if dance != name)
    world, step = staged(pair(dances=(name, other)))
    for expected in seen:
        cell = divmod(world.dancer_cells(world.state)[0, 0].item(), SIDE)
        assert (cell[0] - 2, cell[1] - 8) == expected
        step = world.step(actions(S))
    assert not step.is_last.item()


@pytest.mark.parametrize("true_delay", [False, True])
@pytest.mark.parametrize("n, delay", [(1, 16), (2, 1), (2, 48), (3, 7), (8, 16)])
def test_timing(n, delay, true_delay):
    world = BalletConfig(dancers=(n,), delays=(delay,), observation="tiles", true_delay=true_delay).build(1)
    step = world.reset(3)
    home = world.state.homes.clone()
    previous, moved, cue = home, [], None
    period = (16 if true_delay else 15) + delay
    for frame in range(n * period + 3):
        cells = world.dancer_cells(world.state)
        moved.append((cells != previous)[0].nonzero().flatten().tolist())
        previous = cells
        if cue is None and step.observation["language"].item() != WATCH:
            cue = frame
        assert world.truth().event.item() == (n if cue is not None else (moved[-1] or [-1])[0])
        step = world.step(actions(N))
    assert cue == n * period
    for i in range(n):
        assert moved[i * period : i * period + 16] == [[i]] * 16, "the first move is in the first observation"
        assert moved[i * period + 16 : (i + 1) * period] == [[]] * (delay if true_delay else delay - 1)
    assert moved[cue:] == [[]] * len(moved[cue:])


@pytest.mark.parametrize("home", HOMES)
def test_a_scripted_player_needs_three_moves(home):
    row, column = divmod(home, SIDE)
    other = (2, 2) if home != HOMES[0] else (8, 8)
    world, step = staged(pair(homes=((row, column), other)))
    step = to_the_cue(world, step)
    assert world.clock.item() == 62
    direction = DIRECTIONS.index((np.sign(row - 5), np.sign(column - 5)))
    for taken in range(3):
        assert not step.is_last.item()
        assert world.oracle().item() == direction
        step = world.step(actions(direction))
        assert divmod(world.state.agent.item(), SIDE) == (
            5 + (taken + 1) * np.sign(row - 5),
            5 + (taken + 1) * np.sign(column - 5),
        )
    assert step.terminated.item() and step.reward.item() == step.score.item() == 1
    middle = step.observation["image"][0, 5, 5].tolist()
    assert middle == [KINDS.index("dancer"), 1 + SHAPES.index("tee"), 1], "the dancer is drawn over the agent"


def test_the_official_solo():
    solo = BalletLevel(dancers=(Dancer((2, 8), "zee", "tee", "red"),), target=0)
    world, step = staged(solo, observation="pixels")
    for _ in range(30):
        step = world.step(actions(NE))
        assert step.observation["language"].item() == WATCH
    step = world.step(actions(NE))  # the 31st: swallowed
    assert WORDS[step.observation["language"].item()] == "zee"
    assert divmod(world.state.agent.item(), SIDE) == (5, 5)
    for _ in range(3):
        assert not step.is_last.item()
        step = world.step(actions(NE))
    assert step.reward.item() == 1


def test_another_dancer_ends_the_episode_with_nothing_and_the_next_action_is_ignored():
    world, step = staged(pair(target=1))
    step = to_the_cue(world, step)
    for _ in range(3):
        step = world.step(actions(NE))
    assert step.terminated.item() and not step.truncated.item() and step.reward.item() == step.score.item() == 0
    assert world.truth().start.item() == -1
    step = world.step(actions(NE))
    assert step.is_first.item() and not step.is_last.item() and step.reward.item() == 0
    assert world.state.agent.item() == 60 and step.observation["language"].item() == WATCH


def test_walls_stop_every_move_also_diagonal_ones():
    world, step = staged(pair(homes=((2, 2), (2, 5)), target=1))
    to_the_cue(world, step)
    path = [(E, (5, 6)), (E, (5, 7)), (E, (5, 8)), (E, (5, 9)), (E, (5, 9)), (NE, (5, 9)), (SE, (5, 9)), (S, (6, 9))]
    path += [(S, (7, 9)), (S, (8, 9)), (S, (9, 9)), (S, (9, 9)), (SE, (9, 9)), (SW, (9, 9)), (NE, (9, 9)), (E, (9, 9))]
    path += [(W, (9, 8)), (SW, (9, 8)), (NW, (8, 7))]
    for move, place in path:
        world.step(actions(move))
        assert divmod(world.state.agent.item(), SIDE) == place
    for cell in range(SIDE * SIDE):
        for move in range(8):
            if not is_wall(cell):
                y, x = np.add(divmod(cell, SIDE), DIRECTIONS[move])
                inside = 1 <= y <= 9 and 1 <= x <= 9
                assert cell_after(cell, move) == (y * SIDE + x if inside else cell)
                assert world.moves[cell * 8 + move] == cell_after(cell, move)


def test_the_way_to_the_target_never_leads_over_another_dancer():
    world = BalletConfig(dancers=(8,), observation="tiles").build(1)
    for target in HOMES:
        for cell in range(SIDE * SIDE):
            here, steps = cell, 0
            while not is_wall(cell) and cell not in HOMES and here != target:
                here, steps = cell_after(here, int(world.ways[here * SIDE * SIDE + target])), steps + 1
                assert steps <= 9 and (here == target or here not in HOMES)


def play(world, policy, episodes):
    """Mean score of the first episodes of every row (not of the first to end, which would favour short ones)."""
    step, scores, done = world.reset(), torch.zeros(world.batch_size), torch.zeros(world.batch_size)
    while (done < episodes).any():
        step = world.step(policy(world))
        scores += step.score * (done < episodes)
        done += step.is_last
    return (scores / episodes).mean().item()


@pytest.mark.parametrize("dancers, delays", [((2,), (16,)), ((4,), (3,)), ((2, 8), (2, 5))])
def test_a_uniform_guesser_is_at_chance_and_the_oracle_perfect(dancers, delays):
    config = BalletConfig(dancers=dancers, delays=delays, observation="tiles", max_steps=320)

    def guess(world: Ballet):  # towards a dancer that depends on nothing: the one whose home comes first
        return world.ways[world.state.agent * SIDE * SIDE + world.state.homes.min(1).values]

    chance = play(config.build(2000), guess, 1)
    assert config.spec.chance == pytest.approx(sum(1 / n for n in dancers) / len(dancers))
    assert chance == pytest.approx(config.spec.chance, abs=0.045)  # four standard deviations
    assert play(config.build(256), Ballet.oracle, 1) == config.spec.oracle == 1


def decode(tiles):
    """The pixels of symbols ``[y, x, 3]``."""
    image = np.zeros((11, 9, 11, 9, 3), dtype=np.uint8)
    drawn, colours = shape_masks().numpy(), list(COLOURS.values())
    for y in range(11):
        for x in range(11):
            kind, shape, colour = tiles[y, x].tolist()
            assert (kind == 3) == (shape > 0) == (colour > 0)
            dancer = drawn[shape - 1][..., None] * np.array(colours[colour - 1], dtype=np.uint8)
            image[y, :, x] = (0, 40, 255, dancer)[kind]
    return image.reshape(99, 99, 3)


def test_tiles_and_pixels_tell_the_same_story():
    config = BalletConfig(dancers=(1, 3, 8), delays=(1, 2), max_steps=160)
    worlds = [dataclasses.replace(config, observation=form).build(3, seed=4) for form in ("pixels", "tiles")]
    steps = [world.reset() for world in worlds]
    generator = torch.Generator().manual_seed(0)
    ended = 0
    for t in range(330):
        pixels, tiles = steps
        for one, two in zip(pixels[1:], tiles[1:], strict=True):
            assert torch.equal(one, two)
        assert torch.equal(pixels.observation["language"], tiles.observation["language"])
        for row in range(3) if t % 3 == 0 or pixels.is_last.any() else ():
            image = pixels.observation["image"][row].numpy()
            assert np.array_equal(image, decode(tiles.observation["image"][row]))
            for world in worlds:
                assert np.array_equal(world.render(row), image)
        ended += int(pixels.terminated.sum())
        moves = torch.randint(8, (3,), generator=generator)
        steps = [world.step(moves) for world in worlds]
    assert ended >= 3


def test_a_mixture_deals_all_levels_and_keeps_their_time_limits():
    config = BalletConfig(dancers=(2, 4, 8), delays=(16, 48), observation="tiles")
    world = config.build(3000)
    world.reset()
    state = world.state
    counts = (state.homes < SIDE * SIDE).sum(1)
    kinds, how_often = torch.stack((counts, state.period, state.cue, state.limit), 1).unique(dim=0, return_counts=True)
    expected = [(n, p, n * p, limit) for n in (2, 4, 8) for p, limit in ((31, 320), (63, 1024))]
    assert [tuple(kind) for kind in kinds.tolist()] == expected
    assert how_often.min() > 500 - 4 * 20.5
    for row in range(0, 3000, 50):
        n = int(counts[row])
        for dealt, deck in ((state.homes, HOMES), (state.dances, range(13)), (state.looks, range(15 * 19))):
            assert len(set(dealt[row, :n].tolist())) == n and set(dealt[row, :n].tolist()) <= set(deck)
        for part in (state.looks[row, :n] // 19, state.looks[row, :n] % 19):
            assert len(set(part.tolist())) == n
    eights = state.target[counts == 8].bincount(minlength=8)
    assert eights.min() > 125 - 4 * 10.5 and len(state.homes[counts == 8, 0].unique()) == 8

    walls = config.build(30, seed=1)
    step, ends = walls.reset(), {}
    limits = walls.state.limit.clone()
    for t in range(1, 1025):  # back and forth between the middle and its neighbours: never at a home
        step = walls.step(torch.where(walls.state.agent == 60, N, S))
        for row in step.is_last.nonzero().flatten().tolist():
            ends.setdefault(row, t)
            assert step.truncated[row] and not step.terminated[row] and step.reward[row] == step.score[row] == 0
    assert [ends[row] for row in range(30)] == limits.tolist()


def test_truth_is_the_dance_of_the_target():
    world, step = staged(pair(target=1, delay=3))
    assert world.spec.events == ("dance 1", "dance 2", "cue")
    while step.observation["language"].item() == WATCH:
        assert world.truth().start.item() == world.truth().stop.item() == -1
        step = world.step(actions(N))
    assert (world.truth().start.item(), world.truth().stop.item()) == (18, 34)
    assert world.spec.events[world.truth().event.item()] == "cue"
    assert world.spec.memory_span == 1023


def test_the_device_path_of_new_episodes_keeps_all_rules(monkeypatch):
    world = BalletConfig(dancers=(1, 2), delays=(1,), observation="tiles", max_steps=50).build(64)

    def everywhere(state, ended):
        from recollect.state import where_first

        return where_first(ended, world.begin(world.batch_size), state)

    monkeypatch.setattr(world, "_renew", everywhere)
    assert play(world, Ballet.oracle, 3) == 1


def test_time_to_walk_is_counted_from_the_name_whatever_the_number_of_dancers():
    config = BalletConfig(dancers=(1, 3), delays=(1,), observation="tiles", walk_steps=4)
    world = config.build(32)
    step, cut = world.reset(), torch.zeros(32, dtype=torch.long)
    for clock in range(1, config.spec.max_steps + 1):
        step = world.step(torch.full((32,), 2 + 4 * (clock % 2)))  # east and west by turns: to nobody
        cut = torch.where((cut == 0) & step.truncated, clock, cut)
        assert not step.terminated.any()
    assert set(cut.tolist()) == {1 * 16 + 4, 3 * 16 + 4} and config.spec.max_steps == 3 * 16 + 4


@pytest.mark.gpu
@pytest.mark.parametrize("form", ["pixels", "tiles"])
def test_an_accelerator_shows_the_same(form):
    level = pair(target=1, delay=5)
    worlds = [BalletConfig(delays=(5,), observation=form).build(1, device=device) for device in ("cpu", "cuda")]
    steps = [world.stage([level]) for world in worlds]
    while not steps[0].is_last.item():
        for one, two in zip(steps[0][1:], steps[1][1:], strict=True):
            assert torch.equal(one, two.cpu())
        assert torch.equal(steps[0].observation["image"], steps[1].observation["image"].cpu())
        move = worlds[0].oracle()
        steps = [worlds[0].step(move), worlds[1].step(move.cuda())]
    assert steps[1].reward.item() == 1


@pytest.mark.parametrize(
    "fields, complaint",
    [
        ({"dancers": ()}, "dancers"),
        ({"dancers": (0,)}, "dancers"),
        ({"dancers": (2, 9)}, "dancers"),
        ({"delays": (0,)}, "delays"),
        ({"delays": (-1,), "true_delay": True}, "delays"),
        ({"observation": "text"}, "observation"),
        ({"max_steps": 0}, "max_steps=0"),
        ({"max_steps": 64}, "at least 65"),
        ({"walk_steps": 2}, "walk_steps=2"),
        ({"dancers": (8,), "delays": (200,)}, "at least 1723"),
    ],
)
def test_config_mistakes(fields, complaint):
    with pytest.raises(ValueError, match=complaint):
        BalletConfig(**fields)


def test_level_mistakes():
    good = pair()
    for change, complaint in (
        ({"home": (5, 5)}, "home"),
        ({"home": (1, 13)}, r"dancers\[0\].home=\(1, 13\)"),  # the same number as (2, 2)
        ({"home": (8, 2)}, "dancers: home="),
        ({"dance": "circle_cw"}, "dancers: dance="),
        ({"dance": "chevron_upp"}, "did you mean 'chevron_up'"),
        ({"shape": "square dance"}, "shape"),
        ({"colour": "grey"}, "colour"),
    ):
        with pytest.raises(ValueError, match=complaint):
            dataclasses.replace(good, dancers=(good.dancers[0]._replace(**change), good.dancers[1]))
    with pytest.raises(ValueError, match="target=2"):
        dataclasses.replace(good, target=2)
    world = BalletConfig().build(2)
    with pytest.raises(ValueError, match="number of levels=1: give 2"):
        world.stage([good])
    with pytest.raises(ValueError, match="delay=48"):
        world.stage([good, dataclasses.replace(good, delay=48)])


def test_only_the_chosen_dances_are_seen():
    chosen = ("zee", "plus_cw", "chevron_up")
    world = BalletConfig(dancers=(2,), delays=(1,), dances=chosen, observation="tiles").build(256, seed=3)
    step = to_the_cue(world, world.reset())
    said = step.observation["language"][:, 0].bincount(minlength=len(WORDS))
    assert {WORDS[i] for i in said.nonzero().flatten()} == set(chosen)
    assert said[said > 0].min() > 256 / 6
    dances = world.state.dances
    assert (dances[:, 0] != dances[:, 1]).all()
    assert set(dances.flatten().tolist()) == {list(DANCES).index(name) for name in chosen}


@pytest.mark.parametrize("dances", [("zee",), ("zee", "zee"), ("zee", "polka")])
def test_dances_that_cannot_be_danced_are_named(dances):
    with pytest.raises(ValueError, match="give at least 2 different ones, one per dancer, of circle_cw"):
        BalletConfig(dancers=(2,), dances=dances)


def test_a_level_with_another_dance_is_refused():
    world = BalletConfig(dancers=(2,), dances=("zee", "plus_cw")).build(1)
    with pytest.raises(ValueError, match="the dance 'circle_cw': add it to the config's dances"):
        world.stage([pair()])


def test_the_approach_reward_is_a_potential_and_names_nobody():
    rewards, scores = [], []
    for target in (0, 1):
        world, step = staged(pair(homes=((5, 8), (8, 2)), target=target), approach_reward=0.25)
        step = to_the_cue(world, step)
        assert step.reward.item() == 0
        found = []
        for move in (W, N, E, E, SE, E):  # away, to and fro, then into one
            step = world.step(actions(move))
            found.append(step.reward.item())
        assert step.terminated.all()
        rewards.append(found)
        scores.append(step.score.item())
    assert scores == [1.0, 0.0], "the score does not count it"
    assert rewards[0][:-1] == rewards[1][:-1], "before the touch nothing tells the target"
    assert rewards[0][-1] == rewards[1][-1] + 1
    assert sum(rewards[1]) == pytest.approx(0.25 * 3), "from three cells away to none, whatever the way"


def cells_of(dance):
    """The displacement from home after each move."""
    return np.cumsum([DIRECTIONS[move] for move in DANCES[dance]], 0).tolist()


def test_no_single_step_tells_one_of_the_dances_that_are_alike():
    assert len(ALIKE) == len(set(ALIKE)) == len(HOMES)
    first = [DANCES[dance][0] for dance in ALIKE]
    assert all(first.count(move) > 1 for move in first), "first moves are shared"
    seen = {dance: {tuple(cell) for cell in cells_of(dance)} for dance in ALIKE}
    for dance, cells in seen.items():
        for cell in cells:
            assert any(cell in seen[other] for other in ALIKE if other != dance), (dance, cell)
    # The best guess from one observation of a dance, all dances and moves alike likely: far from knowing it.
    spent = np.array([[cells_of(dance).count([y, x]) for y in (-1, 0, 1) for x in (-1, 0, 1)] for dance in ALIKE])
    assert (spent.sum(1) == 16).all()
    assert spent.max(0).sum() / spent.sum() < 0.4
    # What tells them apart is how long a dancer is where: no two are alike in that.
    assert len({tuple(row) for row in spent.tolist()}) == len(ALIKE)


@pytest.mark.parametrize("n, delay", [(2, 16), (4, 16), (4, 48)])
def test_a_window_of_still_observations_leaves_chance(n, delay):
    """All n! ways to deal n dances look the same in the last delay observations, so no window tells who danced."""
    homes, shapes, colours = ((2, 2), (2, 8), (8, 2), (8, 8)), SHAPES, list(COLOURS)
    deals = list(itertools.permutations(ALIKE[:n]))
    levels = [
        BalletLevel(
            dancers=tuple(Dancer(homes[i], dance, shapes[i], colours[i]) for i, dance in enumerate(deal)),
            target=deal.index(ALIKE[0]),
            delay=delay,
        )
        for deal in deals
    ]
    world = BalletConfig(dancers=(n,), delays=(delay,), observation="tiles").build(len(levels))
    step, seen = world.stage(levels), []
    while (step.observation["language"] == WATCH).all():
        seen.append(step.observation["image"])
        step = world.step(torch.zeros(len(levels), dtype=torch.long))
    still = [*seen[-delay:], step.observation["image"]]  # a dance ends at home
    assert all((image == image[0]).all() for image in still), "nothing to be seen of who danced what"
    assert (step.observation["language"] == step.observation["language"][0]).all()
    moving = seen[-delay - 1]
    assert not (moving == moving[0]).all(), "one step earlier somebody was away from home"
    right = torch.tensor([level.target for level in levels])
    assert torch.equal(right.bincount(minlength=n), torch.full((n,), len(levels) // n)), "whoever is chosen: chance"
