"""Does the agent act on its memory? The verdict over a table of known answers, and on real agents."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from synthetic import STEPS, synthetic_record

import recollect
from recollect import ActorCriticConfig, LSTMConfig
from recollect.agents.actor_critic import ActorCritic
from recollect.interpret.ablation import Ablation, play_without_memory
from recollect.interpret.episodes import record_episode
from recollect.interpret.gates import decides_alike
from recollect.interpret.header import BELIEVE, OF_BELIEF, OF_USE, REMEMBERS, SHARES, USES, answer_questions
from recollect.interpret.live import episode_seed
from recollect.interpret.meanings import MEANINGS, meaning_of
from recollect.interpret.memory_usage import LEAST_POINTS, attended_and_used
from recollect.interpret.recall import maps_of
from recollect.interpret.removal import without_memory
from recollect.interpret.score import score
from recollect.interpret.verdict import (
    Evidence,
    choices_changed,
    decide,
    describe_episode,
    typical_episode,
    with_verdict,
)
from recollect.tasks import TMazeConfig
from recollect.training import load_config


def played(remembering, forgetting, low, high, chance=0.5, oracle=1.0, episodes=32):
    names = {"remembering": remembering, "forgetting": forgetting, "difference": (low, high)}
    return Ablation(**names, episodes=episodes, chance=chance, oracle=oracle)


NAN = math.nan
CASES = [
    # what it is, evidence, answer, a part of the reason
    ("trained", {"changed": 0.5, "moved": 1.0, "ablation": played(1.0, 0.45, 0.4, 0.7)}, "yes", "acts on what"),
    ("trained, rare decision", {"changed": 0.001, "moved": 0.9, "ablation": played(1, 0.5, 0.3, 0.7)}, "yes", "0.1%"),
    ("trained, no known range", {"changed": 0.1, "moved": 0.8, "ablation": played(500, 85, 405, 424, NAN, NAN)}, "yes",
     "500.00 with its memory, 85.00 without"),
    ("trained, habit agrees in few episodes", {"changed": 0.0, "moved": 0.6, "ablation": played(1, 0.31, 0.5, 0.8)},
     "yes", "habit and memory agree"),
    ("untrained, lucky", {"changed": 0.0, "moved": 0.003, "ablation": played(0.6, 0.3, 0.1, 0.5)}, "no", "the same"),
    ("trained, no policy known", {"ablation": played(1.0, 0.45, 0.4, 0.7)}, "yes", "acts on what"),
    ("untrained", {"changed": 0.0, "moved": 0.003, "ablation": played(0.4, 0.4, 0, 0)}, "no", "acts the same"),
    ("untrained, even choices", {"changed": 0.5, "moved": 0.003, "ablation": played(14, 9.8, 2.4, 6, NAN, NAN)}, "no",
     "moves by 0.3% at most, on average over episodes"),
    ("untrained, large weights", {"changed": 0.6, "moved": 0.9, "ablation": played(0.2, 0.1, 0.05, 0.2)}, "no",
     "no better than an agent that has none"),
    ("broken: memory path cut", {"changed": 0.0, "moved": 0.0, "ablation": played(0.5, 0.5, 0, 0)}, "no", "the same"),
    ("broken: remembers noise", {"changed": 0.4, "moved": 0.9, "ablation": played(0.5, 0.52, -0.1, 0.06)}, "no",
     "does not help"),
    ("broken: memory misleads", {"changed": 0.4, "moved": 0.9, "ablation": played(0.3, 0.6, -0.4, -0.2)}, "no",
     "better without"),
    ("world needs no memory", {"changed": 0.02, "moved": 0.3, "ablation": played(1, 1, 0, 0, 1, 1)}, "no", "not help"),
    ("no memory", {"has_memory": False, "ablation": played(0.5, 0.5, 0, 0)}, "no", "has no memory"),
    ("NaN weights", {"failed": ("finite",), "changed": 0.5, "moved": 1.0}, "cannot tell", "check failed: finite"),
    ("too few", {"episodes": 1, "ablation": played(1, 0, NAN, NAN, episodes=4)}, "cannot tell", "4 episodes are"),
    ("too wide", {"changed": 0.5, "moved": 0.9, "ablation": played(0.8, 0.6, -0.1, 0.5)}, "cannot tell", "and 0.50"),
    ("records alone, the same", {"changed": 0.0, "moved": 0.0}, "no", "none of its decisions change"),
    ("records alone, another", {"changed": 0.5, "moved": 1.0}, "cannot tell", "50% of its decisions change, but"),
    ("records alone, nothing", {}, "cannot tell", "was not tried"),
]  # fmt: skip


@pytest.mark.parametrize(("evidence", "answer", "part"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_the_verdict_on_known_cases(evidence, answer, part):
    found = decide(Evidence(**{"episodes": 8, "of": "decisions"} | evidence))
    assert found.answer == answer and part in found.reason
    assert str(found).startswith(f"{answer.capitalize()}: ") and str(found).endswith(".")
    assert 0 <= len(found.numbers) <= 3


def with_effect(record, agree, size):
    """Give a record the policy without memory: the same first choice (``agree``), or the other; by so many nats."""
    logits, whole = np.zeros((STEPS, 2), np.float32), np.zeros((STEPS, 2), np.float32)
    logits[:, 0], whole[:, int(not agree)] = 2, 1
    kl = np.full(STEPS, size, np.float32)
    return replace(record, logits=logits, removal=replace(record.removal, whole=whole, whole_kl=kl))


def test_the_typical_episode_has_the_median_effect_and_says_where_habit_and_memory_agree():
    sizes = [3.0, 0.1, 0.2, 5.0, 0.4]
    records = [with_effect(synthetic_record(i), size < 1, size) for i, size in enumerate(sizes)]
    assert typical_episode(records) is records[4]
    assert typical_episode([*records, replace(records[0], pairs=())]) is records[4]  # it reaches no decision
    changed, moved = choices_changed(records[0])
    assert changed.all() and np.allclose(moved, 1 / (1 + np.exp(-2)) - 1 / (1 + np.exp(1)))
    assert "22 of 22 decisions would change" in describe_episode(records[0])
    assert "habit and memory agree" in describe_episode(records[1])
    even = replace(records[0], logits=records[0].logits / 100)
    even = replace(even, removal=replace(even.removal, whole=even.removal.whole / 100))
    assert describe_episode(even) == "In this episode the policy moves by 0.7% at most without memory."
    assert describe_episode(synthetic_record()) == ""
    bare = replace(records[0], removal=None)
    assert typical_episode([bare, bare]) is bare


def test_choices_count_at_decisions_only_and_the_sentence_says_so():
    report = with_verdict(score(synthetic_record()), [with_effect(synthetic_record(i), i % 2, 1.0) for i in range(8)])
    assert report.answer == "cannot tell" and "50% of its decisions change" in report.verdict
    assert report.key_numbers == {"of its decisions change without it": "50%"}


def test_a_page_gives_the_reason_once_and_adds_the_shown_episode():
    shown = with_effect(synthetic_record(), False, 3.0)
    report = with_verdict(score(shown), [shown] * 8, played(1.0, 0.45, 0.4, 0.7))
    answers = {one["question"]: one["answer"] for one in answer_questions(shown, report.to_json(), {})}
    assert report.verdict.startswith("Yes: it acts on what it remembers")
    assert not any("acts on what it remembers" in answer for answer in answers.values())
    assert answers[USES] == "Yes. In this episode 22 of 22 decisions would change without memory."
    alone = replace(shown, info=replace(shown.info, core="memoryless"), heads=(), temporal=None, chunk_rel=None)
    assert score(replace(alone, removal=None)).findings == "nothing: it sees the present step alone"


def test_measures_that_test_a_picture_stand_below_the_question_whether_to_believe_it():
    asked = {
        REMEMBERS: ("recall@1", "recall@1, head 1 (chunks)", "mass on key"),
        USES: ("removal KL", "cue swap followed"),
        BELIEVE: (
            *(
                "staticness",
                "distance between heads",
                "deletion of places, attention",
                "insertion of places, attention",
            ),
            *("recall@1, boundaries moved", "recall@1, chunks of 4", "decision kept, boundaries moved"),
            *("IoU of attention and perturbation actor", "lag-only share, head 1"),
        ),
    }
    metrics = [{"name": name, "value": 0.5} for names in asked.values() for name in names]
    found = answer_questions(synthetic_record(), {"metrics": metrics}, {})
    assert {one["question"]: {row["name"] for row in one["rows"]} for one in found} == {
        question: set(names) for question, names in asked.items()
    }
    assert all(any(name.startswith(start) for name in asked[BELIEVE]) for start in OF_BELIEF)


def test_measures_of_heads_are_a_row_per_head_below_the_question_that_they_answer():
    heads = [
        {"name": "first", "metrics": [{"name": "lift", "value": 2.0}, {"name": "lag-only share", "value": 0.25}]},
        {"name": "second", "metrics": [{"name": "recall@1", "value": 0.5, "chance": 0.1}]},
    ]
    found = answer_questions(synthetic_record(), {"heads": heads}, {"first": "head 1"})
    remembers, uses, believe = (one["heads"] for one in found)
    assert remembers["measures"] == ["lift", "recall@1"] and [row["head"] for row in remembers["rows"]] == [
        "head 1",
        "second",
    ]
    assert [[cell and cell["value"] for cell in row["cells"]] for row in remembers["rows"]] == [
        ["2.00", None],
        [None, "50 %"],
    ]
    assert remembers["rows"][1]["cells"][1]["control"] == "chance 10 %"
    assert remembers["meanings"] == f"lift: {MEANINGS['lift']}; recall@1: {MEANINGS['recall@']}"
    assert uses["rows"] == [] and believe["measures"] == ["lag-only share"] and len(believe["rows"]) == 1
    assert not any(one["rows"] for one in found), "nothing about all heads was measured"


def test_the_longest_beginning_of_a_name_gives_its_meaning():
    assert meaning_of("removal KL of all") == MEANINGS["removal KL of all"] != meaning_of("removal KL")
    assert meaning_of("recall@1, chunks of 4") == MEANINGS["recall@1, chunks of"]
    assert meaning_of("something else") == ""
    for start in (*OF_USE, *OF_BELIEF, *SHARES):
        assert any(known.startswith(start) or start.startswith(known) for known in MEANINGS), f"{start} has no meaning"


def test_no_correlation_of_fewer_than_five_points():
    record = synthetic_record()
    start = record.pairs[0].query[0]
    few = replace(record, pairs=(replace(record.pairs[0], query=(start, start + 1)),))
    kl = few.removal.kl.copy()
    kl[:, LEAST_POINTS - 1 :] = np.nan
    cut = replace(few, removal=replace(few.removal, kl=kl))
    maps = maps_of(few, [1])
    assert attended_and_used(few, maps) is not None and attended_and_used(cut, maps) is None


def test_an_agent_without_memory_starts_every_step_from_its_initial_state():
    world = TMazeConfig(length=4)
    spec = world.spec
    torch.manual_seed(0)
    agent = (
        ActorCriticConfig(policy_gain=1.0).build(LSTMConfig(dim=8), spec.observation_space, spec.action_space).eval()
    )
    record = record_episode(agent, world, seed=3)
    playback = record.playback()
    policy, kl = without_memory(playback)
    alone = [playback.step(t, agent.initial_state(1))[0].policy[0, 0].detach().numpy() for t in range(record.num_steps)]
    assert np.allclose(policy, alone, atol=1e-6) and kl[0] < 1e-9 < kl[1:].max()
    found = play_without_memory(agent, world, episodes=6, longest=3)
    assert found.measure == "reward" and found.episodes == 6 and math.isnan(found.chance)
    assert play_without_memory(agent, world, episodes=6).measure == "score"


def test_a_recorded_pass_without_numbers_where_the_agent_had_them_is_not_alike():
    world = TMazeConfig(length=4)
    agent = ActorCriticConfig().build(LSTMConfig(dim=8), world.spec.observation_space, world.spec.action_space).eval()
    record = record_episode(agent, world, seed=3, longest=3)
    assert decides_alike([record]).passed
    agent.policy_head[-1].bias.data.fill_(math.nan)
    assert not decides_alike([record]).passed
    assert decides_alike([record_episode(agent, world, seed=3, longest=3)]).passed  # both have none, says "finite"


def zero_reads(agent):
    """Cut the memory's path: what reads the chunks and the window, or what an LSTM hands from step to step, is 0."""
    for name, parameter in agent.core.named_parameters():
        if "memory.out" in name or "local.out" in name or "weight_hh" in name:
            parameter.data.zero_()
        if "bias_ih" in name:  # the forget gate of an LSTM is shut
            width = len(parameter) // 4
            parameter.data[width : 2 * width] = -1e4
    return agent


def draw_anew(agent):
    torch.manual_seed(1)
    return ActorCritic.from_description(agent.describe()).eval()


def unchanged(agent):
    return agent


AGENTS = [
    ("t-maze-hcam", {"length": 40}, unchanged, "yes"),
    ("ballet-hcam", {"delays": (48,)}, unchanged, "yes"),
    ("cartpole-lstm", {}, unchanged, "yes"),
    ("goal-shown-once-ttm", {}, unchanged, "yes"),
    ("t-maze-hcam", {}, draw_anew, "no"),
    ("ballet-hcam", {}, draw_anew, "no"),
    ("cartpole-lstm", {}, draw_anew, "no"),
    ("goal-shown-once-ttm", {}, draw_anew, "no"),
    ("t-maze-hcam", {}, zero_reads, "no"),
    ("cartpole-lstm", {}, zero_reads, "no"),
]


@pytest.mark.long
@pytest.mark.parametrize(("name", "changes", "change", "answer"), AGENTS)
def test_the_verdict_on_trained_untrained_and_broken_agents(name, changes, change, answer):
    world = replace(load_config(f"model:{name}").trained_on, **changes)
    agent = change(recollect.load(f"model:{name}"))
    seeds = [episode_seed(0, number) for number in range(2)]
    episodes = [record_episode(agent, world, seed=seed, longest=150).with_removal("all") for seed in seeds]
    report = with_verdict(score(episodes), episodes, play_without_memory(agent, world, episodes=16, longest=500))
    assert report.answer == answer, report.verdict
