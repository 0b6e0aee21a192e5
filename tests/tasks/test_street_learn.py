import itertools
import math
from collections import deque
from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest
import torch

from recollect.tasks.worlds.street_learn.city_graphs import (
    FORWARD,
    LEFT,
    MAX_EDGES,
    RIGHT,
    CityGraph,
    build_move_tables,
    collect_streets,
    contract_streets,
    generate_city,
    list_neighbours,
    read_gexf,
    sample_neighbourhoods,
)
from recollect.tasks.worlds.street_learn.world import (
    BEST_MIXTURE,
    COLLECT,
    HELD_OUT_CITIES,
    TRAINING_CITIES,
    StreetLearnConfig,
    draw_symbol_views,
    expected_goals,
)

SMALL = StreetLearnConfig(cities=(0, 1), num_junctions=3, pool=24, steps=60)
RULES = ("paper", "collect")

# --- cities and neighbourhoods ---


def test_a_city_is_its_seed():
    for one, two in zip(generate_city(3), generate_city(3), strict=True):
        assert np.array_equal(one, two)
    assert not np.array_equal(generate_city(3).streets, generate_city(4).streets)
    assert not set(TRAINING_CITIES) & set(HELD_OUT_CITIES)


@pytest.mark.parametrize("seed", [0, 5])
def test_no_two_streets_cross(seed):
    places, streets = generate_city(seed)
    start, end = places[streets[:, 0]], places[streets[:, 1]]

    def side(a, b, c):  # on which side of a-b is c
        return np.sign((b - a)[..., 0] * (c - a)[..., 1] - (b - a)[..., 1] * (c - a)[..., 0])

    a, b, c, d = start[:, None], end[:, None], start[None], end[None]
    crosses = (side(a, b, c) * side(a, b, d) < 0) & (side(c, d, a) * side(c, d, b) < 0)
    assert not crosses.any()


def test_a_city_is_one_piece_with_junctions():
    city = generate_city(7)
    links, seen, waiting = list_neighbours(city), {0}, [0]
    while waiting:
        new = set(links[waiting.pop()]) - seen
        seen |= new
        waiting += new
    assert len(seen) == len(city.places)
    assert sum(len(others) > 2 for others in links) > 100


def test_contraction_of_a_city_drawn_by_hand():
    #   0 - 1 - 2 - 3     4 hangs on 2 by way of 5; 2 - 6 - 7 - 2 is a loop; 3 and 2 are also joined by way of 8
    streets = [(0, 1), (1, 2), (2, 3), (2, 5), (4, 5), (2, 6), (6, 7), (2, 7), (2, 8), (3, 8), (3, 9)]
    places = np.arange(20.0).reshape(10, 2)
    found = contract_streets(CityGraph(places, np.array(streets)))
    assert found.places.tolist() == places[[0, 2, 3, 4, 9]].tolist()
    assert found.streets.tolist() == [[0, 1], [1, 2], [1, 3], [2, 4]]


def test_moves_at_a_crossing_drawn_by_hand():
    #         1 north
    #  4 west 0 2 east          0-1, 0-2, 0-3, 0-4; a walker who comes from the west faces east
    #         3 south
    places = np.array([(0, 0), (0, 1), (1, 0.1), (0, -1), (-1, 0)], dtype=float)
    streets = [(0, 1), (0, 2), (0, 3), (0, 4)]
    move, place = build_move_tables(places, streets)
    north, east, south, west, from_north, from_east, from_south, from_west = range(8)
    assert place.tolist() == [0, 0, 0, 0, 1, 2, 3, 4]
    assert move[from_west].tolist() == [east, from_west, from_west]
    assert move[from_south, FORWARD] == north and move[from_north, FORWARD] == south
    assert move[from_east, FORWARD] == west
    assert move[north].tolist() == [from_north, west, east], "at a dead end the walker faces back"
    assert move[south, LEFT] == east and move[south, RIGHT] == west


def test_the_least_turn_is_measured_around_the_circle():
    # Southwards at 175 degrees: straight on is the street at -175, not the one at 120.
    def at(degrees):
        return (math.sin(math.radians(degrees)), math.cos(math.radians(degrees)))

    places = np.array([(0, 0), at(175 - 180), at(-175), at(120)])
    move, _ = build_move_tables(places, [(0, 1), (0, 2), (0, 3)])
    assert move[3, FORWARD] == 1  # edge 3 leads from place 1 to 0, edge 1 from 0 to 2


@pytest.mark.parametrize("junctions", [1, 3, 5, 8])
def test_a_neighbourhood_is_found_breadth_first(junctions):
    links = list_neighbours(contract_streets(generate_city(2)))
    for center in range(0, len(links), 11):
        if len(links[center]) < 3:
            continue
        streets = collect_streets(links, center, junctions)
        # Literally: visit places in order of their distance until enough have three streets.
        queue, seen, walked = [center], [center], set()
        while sum(sum(place in street for street in walked) > 2 for place in seen) < junctions:
            here = queue.pop(0)
            for there in links[here]:
                walked.add(frozenset((here, there)))
                if there not in seen:
                    seen.append(there)
                    queue.append(there)
        assert {frozenset(street) for street in streets} == walked
    assert collect_streets(list_neighbours(CityGraph(np.zeros((2, 2)), np.array([[0, 1]]))), 0, 1) is None


def test_the_tables_are_right_about_distances():
    pool = SMALL.neighbourhoods
    for row in range(0, len(pool.num_edges), 5):
        number = int(pool.num_edges[row])
        move = pool.move[row, :number]
        assert move.max() < number
        edges = torch.arange(number)
        assert torch.equal(move[move[:, LEFT], RIGHT], edges) and torch.equal(move[move[:, RIGHT], LEFT], edges)
        for start in range(number):
            ways, waiting = {start: 0}, deque([start])
            while waiting:
                here = waiting.popleft()
                for there in move[here].tolist():
                    if there not in ways:
                        ways[there] = ways[here] + 1
                        waiting.append(there)
            assert pool.distance[row, start, :number].tolist() == [ways[goal] for goal in range(number)]
            for goal in set(range(number)) - {start}:
                after = [pool.distance[row, move[start, a], goal] for a in range(3)]
                assert pool.best[row, start, goal] == after.index(min(after))


def test_sizes_of_neighbourhoods():
    for junctions, cities in itertools.product((3, 8), ((0, 1), HELD_OUT_CITIES)):
        pool = StreetLearnConfig(num_junctions=junctions, cities=cities, pool=32).neighbourhoods
        assert len(pool.num_edges) == 32
        assert pool.num_edges.max() == pool.place.shape[1] <= MAX_EDGES
        for row, number in enumerate(pool.num_edges.tolist()):
            assert (pool.place[row, :number].bincount() > 2).sum() >= junctions


# --- the world ---


def play(world, act, episodes=1, seed=None):
    """Scores [episodes * b] under ``act(step)``."""
    step, scores = world.reset(seed), []
    while len(scores) < episodes:
        step = world.step(act(step))
        assert not step.terminated.any()
        if step.is_last.any():
            scores.append(step.score)
            step = world.step(act(step))
    return torch.cat(scores)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("observation", ["one_hot", "symbols", "rendered"])
def test_contract(rule, observation):
    config = replace(SMALL, rule=rule, observation=observation)
    world, twin = config.build(16, seed=4), config.build(16, seed=4)
    step, same = world.reset(), twin.reset()
    space, total = world.spec.observation_space, torch.zeros(16)
    for count in range(1, 130):
        assert all(torch.equal(one, two) for one, two in zip(step, same, strict=True))
        assert step.observation.shape[1:] == space.shape and space.contains(step.observation[0].numpy())
        assert step.reward.dtype == torch.float32
        total = torch.where(step.is_first, 0, total + step.reward)
        assert torch.equal(step.score, torch.where(step.truncated, total, 0))
        assert bool(step.truncated.all()) == bool(step.truncated.any()) == (count % 61 == 0)
        actions = torch.where(
            torch.rand(16) < 0.5, world.oracle(), torch.randint(int(world.spec.action_space.n), (16,))
        )
        step, same = world.step(actions), twin.step(actions)
        if count == 70:  # in the middle of an episode: another world goes on
            twin = config.build(16, seed=99)
            twin.load(*world.save())


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("config", [SMALL, replace(SMALL, num_junctions=8, steps=40)], ids=["3", "8"])
def test_chance_and_oracle_are_what_players_score(rule, config):
    world = replace(config, rule=rule).build(2000, seed=0)
    actions = int(world.spec.action_space.n)
    for level, act in (
        (world.spec.oracle, lambda step: world.oracle()),
        (world.spec.chance, lambda step: torch.randint(actions, (2000,))),
    ):
        scores = play(world, act)
        assert abs(scores.mean() - level) < 4 * scores.std() / 2000**0.5
    # A policy that is not uniform, to see that the probabilities are not mixed up.
    policy = (0.6, 0.3, 0.1) if rule == "paper" else (0.5, 0.2, 0.1, 0.2)
    weights = torch.tensor(policy)
    scores = play(world, lambda step: torch.multinomial(weights, 2000, replacement=True))
    assert abs(scores.mean() - expected_goals(world.map, rule, config.steps, policy)) < 4 * scores.std() / 2000**0.5


@pytest.mark.parametrize("rule", RULES)
def test_expected_goals_equals_a_literal_recursion(rule):
    places = np.array([(0, 0), (0, 1), (1, 0), (-1, -1)], dtype=float)
    city = CityGraph(places, np.array([(0, 1), (0, 2), (0, 3)]))
    pool = sample_neighbourhoods([city], 1, 4)
    edges = range(6)
    move = pool.move[0].tolist()
    pairs = [(s, g) for s in edges for g in edges if s != g]

    def after(s, g, action, steps, play):
        if rule == "paper":
            s = move[s][action]
            return 1 + sum(play(*pair, steps) for pair in pairs) / 30 if s == g else play(s, g, steps)
        if action < 3:
            return play(move[s][action], g, steps)
        return 1 + sum(play(s, new, steps) for new in edges if new != s) / 5 if s == g else play(s, g, steps)

    actions = range(3 if rule == "paper" else 4)
    for choose in (max, lambda values: sum(values) / len(values)):

        @lru_cache
        def play(s, g, steps, choose=choose):
            return choose([after(s, g, action, steps - 1, play) for action in actions]) if steps else 0.0

        expected = sum(play(s, g, 8) for s, g in pairs) / 30
        policy = None if choose is max else (1 / len(actions),) * len(actions)
        # With max: that shortest ways are the best of all policies.
        assert expected_goals(pool, rule, 8, policy) == pytest.approx(expected, abs=1e-5)


def test_goals_under_the_paper_rule_bring_a_new_start():
    world = SMALL.build(256, seed=0)
    step = world.reset()
    starts = []
    for _ in range(50):
        before = world.state
        step = world.step(world.oracle())
        reached, state = step.reward == 1, world.state
        moved = world.map.move[
            before.neighbourhood, before.here, world.map.best[before.neighbourhood, before.here, before.goal].long()
        ]
        assert torch.equal(reached, moved == before.goal)
        assert (state.here != state.goal).all()
        assert torch.equal(state.goal[~reached], before.goal[~reached])
        assert torch.equal(state.here[~reached], moved[~reached])
        starts.append((state.here != before.goal)[reached].float().mean())
    assert torch.stack(starts).mean() > 0.8, "the walker goes on from somewhere else"


def test_goals_under_the_collect_rule_must_be_collected():
    world = replace(SMALL, rule="collect").build(256, seed=0)
    world.reset()
    collect = torch.full((256,), COLLECT)
    assert not world.step(collect).reward.any(), "nobody starts on the goal"
    arrived = torch.zeros(256, dtype=torch.bool)
    for _ in range(30):
        before = world.state
        on_goal = before.here == before.goal
        arrived |= on_goal
        step = world.step(world.oracle())
        assert torch.equal(step.reward == 1, on_goal)
        assert torch.equal(world.state.here[on_goal], before.here[on_goal])
        assert (world.state.goal != before.goal)[on_goal].all()
    assert arrived.all()


def test_symbols_are_dealt_anew_and_stay_for_the_episode():
    world = SMALL.build(64, seed=0)
    step = world.reset()
    here, goal = step.observation.unflatten(1, (2, MAX_EDGES)).unbind(1)
    assert (here.sum(1) == 1).all() and (goal.sum(1) == 1).all() and (here != goal).any(1).all()
    assert len(here.argmax(1).unique()) > 20
    turned = world.step(torch.full((64,), LEFT))
    back = world.step(torch.full((64,), RIGHT))
    undisturbed = (turned.reward == 0) & (back.reward == 0)
    assert undisturbed.sum() > 40 and torch.equal(step.observation[undisturbed], back.observation[undisturbed])


def test_views_tell_symbols_apart_and_show_what_one_hot_names():
    views = draw_symbol_views()
    assert views.dtype == torch.uint8 and len({view.numpy().tobytes() for view in views}) == MAX_EDGES
    plain, seen = SMALL.build(32, seed=3), replace(SMALL, observation="rendered").build(32, seed=3)
    named, image = plain.reset().observation, seen.reset().observation
    for _ in range(5):
        here, goal = named.unflatten(1, (2, MAX_EDGES)).argmax(2).unbind(1)
        assert torch.equal(image[:, :, :16], views[here]) and torch.equal(image[:, :, 16:], views[goal])
        actions = torch.randint(3, (32,))
        named, image = plain.step(actions).observation, seen.step(actions).observation


class MapMaker:
    """Knows only what it saw: remembers where every move led, walks known ways, else tries the nearest unknown move."""

    def __init__(self):
        self.led = {}

    def act(self, here, goal):
        ways, waiting = {here: None}, deque([here])
        for wanted in ("goal", "unknown"):
            while waiting:
                edge = waiting.popleft()
                if edge == goal and ways[edge] is not None:
                    return ways[edge]
                for action in (FORWARD, LEFT, RIGHT):
                    there = self.led.get((edge, action))
                    if wanted == "unknown" and there is None:
                        return action if ways[edge] is None else ways[edge]
                    if there is not None and there not in ways:
                        ways[there] = action if ways[edge] is None else ways[edge]
                        waiting.append(there)
            ways, waiting = {here: None}, deque([here])
        return LEFT


def test_what_is_seen_is_enough_for_one_who_remembers():
    config = StreetLearnConfig(pool=64)
    world = config.build(16, seed=0)
    step, makers = world.reset(), [MapMaker() for _ in range(16)]
    for _ in range(config.steps):
        edges = step.observation.unflatten(1, (2, MAX_EDGES)).argmax(2).tolist()
        actions = [maker.act(*pair) for maker, pair in zip(makers, edges, strict=True)]
        step = world.step(torch.tensor(actions))
        after = step.observation.unflatten(1, (2, MAX_EDGES)).argmax(2).tolist()
        for maker, pair, action, new, reward in zip(makers, edges, actions, after, step.reward.tolist(), strict=True):
            maker.led[pair[0], action] = pair[1] if reward else new[0]
    assert step.score.mean() > 0.5 * world.spec.oracle > 5 * world.spec.chance


def way_to_walk_again(walk, clock, goal):
    """The step behind which to look, by going through a walk: an edge, and the goals reached until then, by step."""
    here = walk[clock][0]
    ways = []
    for begun in (step for step in range(clock) if walk[step][0] == here):
        arrived = next((step for step in range(begun, clock) if walk[step][0] == goal), None)
        if arrived is not None and walk[arrived][1] == walk[begun][1]:
            ways.append((arrived - begun, begun))
    first = next((step for step in range(clock) if walk[step][0] == here), None)
    return min(ways)[1] if ways else first


def test_truth_names_goals_and_the_way_to_walk_again():
    config = replace(SMALL, steps=40)
    world = config.build(8, seed=2)
    step = world.reset()
    walks = [[] for _ in range(8)]
    goals, again, spans = [0] * 8, 0, []
    for clock in range(41):
        truth, state = world.truth(), world.state
        for row in range(8):
            event = "goal reached" if step.reward[row] else "new goal" if clock == 0 else None
            assert truth.event[row] == (-1 if event is None else world.spec.events.index(event))
            goals[row] += int(step.reward[row])
            walks[row].append((int(state.here[row]), goals[row]))
            begun = way_to_walk_again(walks[row], clock, int(state.goal[row]))
            depends = begun is not None and clock < config.steps
            assert truth.start[row] == (begun + 1 if depends else -1)
            assert truth.stop[row] == (begun + 2 if depends else -1)
            spans += [clock - begun] if depends else []
            first = [edge for edge, _ in walks[row]].index(walks[row][-1][0])
            again += depends and begun != first
        step = world.step(world.expert("explorer"))
    assert 30 < max(spans) <= world.spec.memory_span == 39 and again > 20


def moves_to(ways, here, goal):
    """Moves of the shortest way from here to the goal over what is known, by search in breadth; 0 for none."""
    seen, edges, moves = {here}, [here], 0
    while edges:
        if goal in edges:
            return moves
        edges = [ways[edge, move] for edge in edges for move in range(3) if (edge, move) in ways]
        edges, moves = [edge for edge in dict.fromkeys(edges) if edge not in seen], moves + 1
        seen |= set(edges)
    return 0


def test_labels_are_where_known_moves_lead_how_far_the_goal_is_and_from_where_it_is_reached():
    config = replace(SMALL, steps=40)
    world = config.build(8, seed=4)
    world.reset()
    maps, known, far, reached = [{} for _ in range(8)], 0, [], 0
    for clock in range(41):
        label, state = world.truth().label, world.state
        for row in range(8):
            here, goal = int(state.here[row]), int(state.goal[row])
            led = [maps[row].get((here, move)) for move in range(3)]
            led = [0 if edge is None else int(state.symbols[row, edge]) + 1 for edge in led]
            far.append(moves_to(maps[row], here, goal))
            if clock == config.steps:
                assert label[row].tolist() == [-1] * 7
                continue
            assert label[row, :4].tolist() == [*led, far[-1]]
            for move, named in enumerate(label[row, 4:].tolist()):
                begun = [edge for (edge, made), ended in maps[row].items() if made == move and ended == goal]
                assert named in ([int(state.symbols[row, edge]) + 1 for edge in begun] or [0])
                reached += bool(begun)
            known += sum(edge > 0 for edge in led)
        actions = torch.randint(3, (8,))
        there = world.map.move[state.neighbourhood, state.here, actions]
        for row, action in enumerate(actions.tolist()):
            begun, ended = int(state.here[row]), int(there[row])
            maps[row][begun, action] = ended
            if action:  # left undoes right
                maps[row][ended, 3 - action] = begun
        world.step(actions)
    assert known > 200 and max(far) > 3 and reached > 50


def test_symbols_name_the_same_edges_and_the_one_before():
    plain, shown = SMALL.build(16, seed=3), replace(SMALL, observation="symbols").build(16, seed=3)
    named, symbols = plain.reset().observation, shown.reset().observation
    before = torch.zeros(16, dtype=torch.long)
    generator = torch.Generator().manual_seed(0)
    for _ in range(70):
        here, goal = named.unflatten(1, (2, MAX_EDGES)).argmax(2).unbind(1)
        assert torch.equal(symbols, torch.stack((here + 1, goal + 1, before), 1)[:, None])
        actions = torch.randint(3, (16,), generator=generator)
        step, other = plain.step(actions), shown.step(actions)
        named, symbols = step.observation, other.observation
        before = torch.where(step.is_first, 0, here + 1)


# --- published graphs ---


def gexf(path, city):
    """Write a city as the published files are written, in degrees around Madrid."""
    nodes = "".join(
        f'<node id="n{i}"><attvalues><attvalue for="1" value="{40 + y / 100}"/>'
        f'<attvalue for="0" value="{-3 + x / 100 / math.cos(math.radians(40))}"/></attvalues></node>'
        for i, (x, y) in enumerate(city.places.tolist())
    )
    edges = "".join(f'<edge id="{i}" source="n{a}" target="n{b}"/>' for i, (a, b) in enumerate(city.streets.tolist()))
    path.write_text(
        '<?xml version="1.0" encoding="utf-8"?><gexf xmlns="http://www.gexf.net/1.2draft" version="1.2">'
        '<graph defaultedgetype="undirected"><attributes class="node"><attribute id="0" title="lng" type="double"/>'
        f'<attribute id="1" title="lat" type="double"/></attributes><nodes>{nodes}</nodes><edges>{edges}</edges>'
        "</graph></gexf>"
    )


def test_published_graphs_are_read(tmp_path):
    city = generate_city(0, size=8)
    gexf(tmp_path / "madrid_full_graph.gexf", city)
    found = read_gexf(tmp_path / "madrid_full_graph.gexf")
    assert np.array_equal(found.streets, city.streets)
    shape = (found.places - found.places.mean(0)) * 100
    assert np.allclose(shape, city.places - city.places.mean(0), rtol=0.01, atol=0.01)
    config = replace(SMALL, graphs=(str(tmp_path / "madrid_full_graph.gexf"),), cities=())
    made = sample_neighbourhoods([city], 3, 24)
    assert torch.equal(config.neighbourhoods.num_edges, made.num_edges)
    assert config.build(2).reset().observation.shape == (2, 120)
    assert config.spec.chance == pytest.approx(expected_goals(made, "paper", 60, (1 / 3,) * 3), rel=0.05)


def test_attributes_of_edges_are_not_taken_for_those_of_nodes(tmp_path):
    path = tmp_path / "city.gexf"
    gexf(path, generate_city(0, size=8))
    before = read_gexf(path)
    edges = '<attributes class="edge"><attribute id="0" title="length" type="double"/></attributes><nodes>'
    path.write_text(path.read_text().replace("<nodes>", edges))
    assert np.array_equal(read_gexf(path).places, before.places)


ONE_NODE = (
    "<gexf><attribute id='0' title='lat'/><attribute id='1' title='lng'/><node id='7'>"
    "<attvalue for='0' value='{}'/><attvalue for='1' value='1'/></node><edge source='7' target='7'/></gexf>"
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "no such file.*one_shot_streetlearn_graphs"),
        ("<gexf", "not XML"),
        ("<gexf><graph><nodes><node id='7'/></nodes></graph></gexf>", "node '7' has no lat"),
        ("<gexf><graph><nodes/></graph></gexf>", "no edges"),
        ("<gexf><edges><edge source='4' target='5'/></edges></gexf>", "unknown node '4'"),
        (ONE_NODE.format("abc"), "city.gexf': node '7' has lat='abc': give finite degrees"),
        (ONE_NODE.format(""), "node '7' has lat='': give finite degrees"),
        (ONE_NODE.format("nan"), "node '7' has lat='nan': give finite degrees"),
    ],
)
def test_what_is_no_published_graph_is_named(tmp_path, text, message):
    path = tmp_path / "city.gexf"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ValueError, match=message):
        _ = StreetLearnConfig(graphs=(str(path),)).spec


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"rule": "official"}, "rule='official'"),
        ({"observation": "photo"}, "observation='photo'"),
        ({"num_junctions": 0}, "num_junctions=0"),
        ({"steps": 0}, "steps=0"),
        ({"pool": 0}, "pool=0"),
        ({"cities": ()}, "cities=\\(\\)"),
        ({"cities": (3, -1)}, "cities=\\(3, -1\\): give seeds from 0"),
    ],
)
def test_bad_fields_are_named(fields, message):
    with pytest.raises(ValueError, match=message):
        StreetLearnConfig(**fields)


def test_too_many_junctions_are_refused():
    with pytest.raises(ValueError, match="num_junctions=30"):
        _ = StreetLearnConfig(cities=(0,), num_junctions=30, pool=4).spec


# --- policies to compare with ---


def scores_of(config, name, rows=48, seed=5):
    world = config.build(rows, seed=seed)
    step = world.reset()
    while not step.is_last.all():
        step = world.step(world.expert(name))
    return step.score


@pytest.mark.parametrize("rule", RULES)
def test_the_explorer_knows_only_what_it_saw(rule):
    """A walker with a notebook of plain Python takes the same moves as the batched one."""
    config = replace(SMALL, rule=rule)
    world = config.build(4, seed=2)
    step = world.reset()
    notes = [{} for _ in range(4)]
    for _ in range(120):
        state, actions = world.state, world.expert("explorer")
        for row, book in enumerate(notes):
            if step.is_first[row]:
                book.clear()
            here, goal = int(state.here[row]), int(state.goal[row])
            if not step.is_last[row]:
                assert int(actions[row]) == notebook_move(book, here, goal, rule)
            action = int(actions[row])
            if action < COLLECT and not step.is_last[row]:
                there = int(world.map.move[state.neighbourhood[row], here, action])
                book[here, action] = there
                if action != FORWARD:
                    book[there, LEFT + RIGHT - action] = here
        step = world.step(actions)
    assert step.score.min() >= 0


def notebook_move(book, here, goal, rule):
    if here == goal and rule == "collect":
        return COLLECT

    def fewest(wanted):  # breadth first over the moves in the book, until ``wanted(edge, move)``
        best, ways, seen = None, deque([(here, None, 0)]), {here: 0}
        while ways:
            edge, first, moves = ways.popleft()
            for move in (FORWARD, LEFT, RIGHT):
                begin = move if first is None else first
                if wanted(edge, move):
                    best = min(best or (moves + 1, begin), (moves + 1, begin))
                elif (edge, move) in book and seen.get(book[edge, move], moves + 1) >= moves + 1:
                    seen[book[edge, move]] = moves + 1
                    if (book[edge, move], begin, moves + 1) not in ways:
                        ways.append((book[edge, move], begin, moves + 1))
        return best

    known = fewest(lambda edge, move: book.get((edge, move)) == goal)
    return (known or fewest(lambda edge, move: (edge, move) not in book) or (0, FORWARD))[1]


@pytest.mark.parametrize("rule", RULES)
def test_the_replay_does_again_what_it_did(rule):
    """A walker with a diary of plain Python takes the same moves, wherever it has one to take."""
    config = replace(SMALL, rule=rule)
    world = config.build(4, seed=2)
    step = world.reset()
    diaries, books, kinds = [[] for _ in range(4)], [set() for _ in range(4)], set()
    for _ in range(160):
        state, actions = world.state, world.expert("replay")
        for row, (diary, book) in enumerate(zip(diaries, books, strict=True)):
            if step.is_first[row]:
                diary.clear()
                book.clear()
            here, goal = int(state.here[row]), int(state.goal[row])
            action = int(actions[row])
            if step.is_last[row]:
                continue
            wanted, kind = diary_move(diary, book, here, goal, rule)
            kinds.add(kind)
            assert wanted is None or action == wanted
            diary.append((here, action, int(state.collected[row])))
            if action < COLLECT:
                book.add((here, action))
                if action != FORWARD:
                    book.add((int(world.map.move[state.neighbourhood[row], here, action]), LEFT + RIGHT - action))
        step = world.step(actions)
    assert kinds >= {"again", "new"}


def diary_move(diary, book, here, goal, rule):
    if here == goal and rule == "collect":
        return COLLECT, "collect"
    best = None
    for begin, (edge, _, task) in enumerate(diary):
        if edge == here:
            for end in range(begin, len(diary)):
                if diary[end][2] != task:
                    break
                if diary[end][0] == goal:
                    best = min(best or (end - begin, begin), (end - begin, begin))
                    break
    if best is not None:
        return diary[best[1]][1], "again"
    new = [move for move in (FORWARD, LEFT, RIGHT) if (here, move) not in book]
    return (new[0], "new") if new else (None, "mixture")


@pytest.mark.parametrize("rule", RULES)
def test_the_five_reference_lines_are_in_order(rule):
    config = replace(SMALL, rule=rule)
    spec = config.spec
    assert spec.policies == ("best mixture", "replay", "explorer")
    mixture, replay, explorer = (scores_of(config, name).mean().item() for name in spec.policies)
    exact = expected_goals(config.neighbourhoods, rule, config.steps, BEST_MIXTURE[rule])
    error = scores_of(config, "best mixture").std().item() / 48**0.5
    assert abs(mixture - exact) < 4 * error
    assert spec.chance < exact < replay < explorer < spec.oracle
    assert config.build(1).expert("nobody") is None


@pytest.mark.parametrize("rule", RULES)
def test_no_mixture_beside_the_best_one_is_better(rule):
    config = StreetLearnConfig(rule=rule, pool=96)
    pool, best = config.neighbourhoods, BEST_MIXTURE[rule]
    assert sum(best) == pytest.approx(1.0)
    score = expected_goals(pool, rule, config.steps, best)
    for give, take in itertools.permutations(range(len(best)), 2):
        if best[give] >= 0.1:
            other = list(best)
            other[give] -= 0.1
            other[take] += 0.1
            assert expected_goals(pool, rule, config.steps, tuple(other)) <= score * 1.005, other


def test_a_state_of_before_the_explorer_still_loads():
    world, other = SMALL.build(3, seed=1), SMALL.build(3, seed=9)
    world.reset()
    tensors, data = world.save()
    del tensors["state.tried"]
    other.load(tensors, data)
    assert torch.equal(other.state.here, world.state.here) and not other.state.tried.any()
