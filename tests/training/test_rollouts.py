import itertools

import pytest
import torch
from small_worlds import CounterConfig, CueConfig, StepsConfig
from test_imitation import TaughtConfig, cloning, impala, rollout_of

from recollect.agents.config import ActorCriticConfig
from recollect.agents.contract import ActorInputs
from recollect.cores import CORES
from recollect.runs.errors import NonFiniteError, WorldError
from recollect.state import leaves, named_leaves
from recollect.tasks import TMazeConfig
from recollect.training import FitConfig, ImitationConfig, fit
from recollect.training.imitation.teachers import RunTeacher, WorldTeacher
from recollect.training.impala.rollouts import Collector


def collector(world, batch_size=5, unroll=4, core="gru", bfloat16=False, **settings):
    torch.manual_seed(0)
    spec = world.spec
    agent = ActorCriticConfig(width=8).build(CORES[core](dim=8, **settings), spec.observation_space, spec.action_space)
    agent.policy_head[-1].weight.data.normal_()
    generator = torch.Generator().manual_seed(1)
    return Collector(agent.eval(), world.build(batch_size, seed=2), unroll, generator, "actor 0", bfloat16=bfloat16)


def parts(observation):
    return observation if isinstance(observation, dict) else {"": observation}


@pytest.mark.parametrize("world", [StepsConfig(), CueConfig(), CueConfig(actions="multi"), CueConfig(actions="box")])
def test_rollouts_hold_what_a_plain_loop_sees(world):
    """A literal loop over steps: state passed by hand, everything kept in lists."""
    ours, twin = collector(world), collector(world)
    agent, state, step = twin.agent, twin.agent.initial_state(5), twin.snapshot.step
    action = twin.snapshot.action
    for _ in range(3):
        rollout, _ = ours.collect(ours.buffer())
        for one, two in zip(leaves(rollout.state), leaves(state), strict=True):
            torch.testing.assert_close(one, two)
        for t in range(5):
            for name, part in parts(step.observation).items():
                assert torch.equal(parts(rollout.observation)[name][:, t], part)
            assert torch.equal(rollout.action[:, t], action)
            for name in ("reward", "is_first", "terminated", "truncated", "score"):
                assert torch.equal(getattr(rollout, name)[:, t], getattr(step, name))
            if t == 4:
                break
            before = {name: part[:, None] for name, part in parts(step.observation).items()}
            inputs = ActorInputs(before.get("", before), action[:, None], step.reward[:, None])
            with torch.no_grad():
                output, state = agent(inputs, state, step.is_first[:, None])
            torch.testing.assert_close(rollout.policies[:, t], output.policy[:, 0])
            action = agent.distribution(rollout.policies[:, t]).sample(twin.generator)
            assert torch.equal(rollout.actions[:, t], action)
            step = twin.world.step(action)


@pytest.mark.parametrize("core", ["gru", "lstm", "hcam"])
def test_acting_in_bfloat16_is_what_a_learner_in_bfloat16_reads(core):
    """As far as bfloat16 can tell; the memory keeps its precision, and what is not meant to be rounded is not."""
    ours, exact = collector(CueConfig(), core=core, bfloat16=True), collector(CueConfig(), core=core)
    for _ in range(3):
        rollout, _ = ours.collect(ours.buffer())
    assert rollout.policies.dtype == torch.float32
    kinds = [leaf.dtype for leaf in leaves(exact.snapshot.state)]
    assert [leaf.dtype for leaf in leaves(ours.snapshot.state)] == kinds
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        learned, _ = ours.agent(rollout.inputs, rollout.state, rollout.is_first)
    with torch.no_grad():
        precise, _ = ours.agent(rollout.inputs, rollout.state, rollout.is_first)
    torch.testing.assert_close(rollout.policies, learned.policy[:, :-1], atol=0.05, rtol=0.05)
    assert not torch.equal(learned.policy, precise.policy)
    assert (rollout.policies - precise.policy[:, :-1]).abs().max() > 1e-4  # float32 agrees to 1e-6


def test_the_last_row_is_the_next_first_and_buffers_are_used_again():
    ours = collector(StepsConfig())
    buffer = ours.buffer()
    first, _ = ours.collect(buffer)
    last = [part[:, -1].clone() for part in first[:7]]
    second, _ = ours.collect(buffer)
    assert all(torch.equal(one, two[:, 0]) for one, two in zip(last, second[:7], strict=True))
    assert second.reward.data_ptr() == buffer.reward.data_ptr() == first.reward.data_ptr()


@pytest.mark.parametrize("unroll", [1, 3, 10])
def test_episodes_are_counted_as_a_plain_loop_counts_them(unroll):
    ours = collector(StepsConfig(), batch_size=7, unroll=unroll)
    returned, length = [0.0] * 7, [0] * 7
    for _ in range(30 // unroll):
        rollout, episodes = ours.collect(ours.buffer())
        steps, ended = 0, []
        for t in range(1, unroll + 1):
            for row in range(7):
                if rollout.is_first[row, t]:
                    returned[row], length[row] = 0.0, 0
                    continue
                steps += 1
                returned[row] += rollout.reward[row, t].item()
                length[row] += 1
                if rollout.terminated[row, t] or rollout.truncated[row, t]:
                    ended.append((returned[row], rollout.score[row, t].item(), length[row]))
        assert episodes.steps == steps == int(rollout.valid.sum())
        assert episodes.ended == len(ended)
        assert [episodes.returned, episodes.score, episodes.length] == [sum(e[i] for e in ended) for i in range(3)]
        assert bool(episodes.means()) == bool(ended)


def test_a_minibatch_takes_whole_rows():
    ours = collector(CueConfig())
    rollout, _ = ours.collect(ours.buffer())
    index = torch.tensor([3, 0])
    part = rollout.rows(index)
    assert torch.equal(part.observation["cue"], rollout.observation["cue"][index])
    assert torch.equal(part.policies, rollout.policies[index])
    assert torch.equal(leaves(part.state)[0], leaves(rollout.state)[0][index])


@pytest.mark.parametrize("core", ["lstm", "hcam", "transformer-xl", "causal-transformer"])
def test_a_moment_goes_on_exactly(core):
    sizes = {"lstm": {}, "hcam": {"num_layers": 1, "num_heads": 2, "memory_len": 4, "chunk_len": 2, "num_chunks": 3}}
    settings = sizes.get(core, {"num_layers": 1, "num_heads": 2, "memory_len": 4})
    ours = collector(StepsConfig(), core=core, **settings)
    ours.collect(ours.buffer())
    snapshot = ours.snapshot
    saved = {name: tensor.clone() for name, tensor in snapshot.tensors().items()}
    ours.reload_weights()
    expected, episodes = ours.collect(ours.buffer())
    twin = collector(StepsConfig(), core=core, **settings)
    twin.load(saved, snapshot.world[1], 0)
    kept = twin.snapshot.tensors()  # and what is saved again, before anything was played
    assert all(torch.equal(tensor, kept[name]) for name, tensor in saved.items())
    found, again = twin.collect(twin.buffer())
    assert episodes[:-1] == again[:-1] and episodes.own_scores(0) == again.own_scores(0)
    assert all(torch.equal(one, two) for one, two in zip(expected[:8], found[:8], strict=True))
    assert all(torch.equal(one, two) for one, two in zip(leaves(expected.state), leaves(found.state), strict=True))
    assert all(torch.equal(tensor, snapshot.tensors()[name]) for name, tensor in saved.items())  # nobody wrote to it


@pytest.mark.parametrize(
    ("fault", "kind", "message"),
    [
        ("nan-reward", NonFiniteError, "the reward is nan in row 1 of actor 0, 4 steps into"),
        ("nan-observation", NonFiniteError, r"the observation.cue is inf in row 2 of actor 0, 4 steps into"),
        ("raise", WorldError, "actor 0: OSError: row 3 fell over .3 steps into"),
    ],
)
def test_faults_are_named_with_row_and_step_and_leave_the_moment(fault, kind, message):
    ours = collector(CueConfig(fault=fault), unroll=8)
    for _ in range(2):
        ours.collect(ours.buffer())
    snapshot = ours.snapshot
    with pytest.raises(kind, match=message):
        ours.collect(ours.buffer())
    assert ours.snapshot is snapshot


def test_the_policy_of_a_rollout_is_the_learner_s_whoever_acted():
    config, rollouts = cloning(TMazeConfig(length=3), unroll=9), []
    for acting in (0, 4):
        agent, _, rollout = rollout_of(config, WorldTeacher("oracle"), acting=acting)
        rollouts.append(rollout.policies)
        output, _ = agent(rollout.inputs, rollout.state, rollout.is_first)
        torch.testing.assert_close(rollout.policies, output.policy[:, :-1])
    assert not torch.equal(*rollouts)  # it saw something else


def test_a_run_that_teaches_is_shown_what_it_said_itself(tmp_path):
    told = {"core": CounterConfig(told=1), "agent": ActorCriticConfig(norm=False, previous_action="logits")}
    fit(impala(ImitationConfig(), fit=FitConfig(steps=2), **told), tmp_path / "run")
    config = cloning(batch_size=3, unroll=6)

    def playing():
        torch.manual_seed(0)
        teacher = RunTeacher(str(tmp_path / "run"), config.world.spec, 3, torch.device("cpu"))
        world = config.world.build(3, seed=1)
        return Collector(config.build_agent(), world, 6, torch.Generator().manual_seed(2), teacher=teacher)

    ours, shown = playing(), []
    original = ours.teacher.stream.step

    def step(inputs, is_first):
        output = original(inputs, is_first)
        shown.append((inputs, is_first, output))
        return output

    ours.teacher.stream.step = step
    ours.collect(ours.buffer())
    saved = {name: tensor.clone() for name, tensor in ours.snapshot.tensors().items()}
    data = ours.snapshot.world[1]
    second, _ = ours.collect(ours.buffer())
    assert len(shown) == 12
    for (_, _, before), (inputs, first, _) in itertools.pairwise(shown):
        assert torch.equal(inputs.policy[~first], before.policy[~first])
        assert torch.equal(inputs.features[~first], before.features[~first]) and inputs.features.shape == (3, 1)
    twin = playing()
    twin.load(saved, data, 0)
    again, _ = twin.collect(twin.buffer())
    assert torch.equal(again.target, second.target)


def test_the_memory_of_a_run_that_teaches_is_read_from_older_files(tmp_path):
    fit(impala(ImitationConfig(), fit=FitConfig(steps=1)), tmp_path / "run")
    teachers = [RunTeacher(str(tmp_path / "run"), TaughtConfig().spec, 3, torch.device("cpu")) for _ in range(2)]
    inputs = ActorInputs({"cue": torch.randn(3, 2)}, torch.zeros(3, dtype=torch.long), torch.zeros(3))
    teachers[0].show(None, inputs, torch.ones(3, dtype=torch.bool))
    teachers[1].load_state(dict(named_leaves(teachers[0].stream.state)))
    one, two = (teacher.show(None, inputs, torch.zeros(3, dtype=torch.bool)) for teacher in teachers)
    assert torch.equal(one, two)
