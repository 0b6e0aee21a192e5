"""Each attention agent in the training engine: the learner says what the actor said, runs resume, models load anew."""

import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from recollect.agents.contract import ActorInputs
from recollect.recipes.attention_agents import ATTENTION_AGENTS, attention_agent
from recollect.tasks import CatchConfig
from recollect.training import EvaluationConfig, FitConfig, ReuseConfig, ScheduleConfig
from recollect.training.impala import trainer as impala
from recollect.training.impala.trainer import ImpalaTrainer
from tiers import first

WORLD = CatchConfig(side=42, balls=1)
ASYNCHRONOUS = ScheduleConfig(mode="asynchronous", actors=2, queue_length=2)
LOADS = """
import sys, torch
from recollect.agents.actor_critic import ActorCritic
from recollect.agents.contract import ActorInputs
for folder in sys.argv[1:]:
    agent = ActorCritic.load(folder)
    inputs = torch.load(f"{folder}/inputs.pt")
    with torch.no_grad():
        output, _ = agent(ActorInputs(*inputs), agent.initial_state(2), torch.zeros(2, 3, dtype=torch.bool))
    torch.save(output.policy, f"{folder}/policy.pt")
"""


def small(name):
    """The agent with a narrow network and a short memory, in short rollouts; chunks as it has them."""
    config = attention_agent(name, WORLD)
    channels = (2, 2, 4)
    core = {"channels": 4, "token_dim": 4, "memory_len": 3, "time_rows": None, "dim": 32, "map_dim": 12, "key_dim": 4}
    core |= {"num_heads": 2, "hidden_dim": 16, "query_dim": 8, "answer_dim": 16, "frequencies": 2}
    core = {field: value for field, value in core.items() if hasattr(config.core, field)}
    image_dim = 32 - 4 if name == "adaptive" else None
    encoders = replace(config.agent.encoders, channels=channels, image_dim=image_dim, scale_images=True)
    reuse = config.loss.reuse
    return replace(
        config,
        core=replace(config.core, **core),
        agent=replace(config.agent, encoders=encoders, policy_gain=1.0),
        loss=replace(config.loss, reuse=reuse if reuse.chunk is None else replace(reuse, chunk=4)),
        batch_size=2,
        unroll=11,
        evaluation=EvaluationConfig(episodes=2),
        fit=FitConfig(steps=4, checkpoint_every=2, evaluate_every=4),
    )


@pytest.mark.parametrize("schedule", [ScheduleConfig(), ASYNCHRONOUS], ids=["synchronous", "asynchronous"])
@pytest.mark.parametrize("name", first(2, ATTENTION_AGENTS))
def test_the_learner_says_what_the_actor_said(name, schedule, monkeypatch):
    """Step by step at the actor, through the queue, and all rows at once at the learner: the same policies."""
    config = small(name)
    config = replace(
        config,
        loss=replace(config.loss, reuse=ReuseConfig()),
        optimizer=replace(config.optimizer, learning_rate=1e-30),  # no weight changes, at any lag
        schedule=schedule,
    )
    compared, original = [], impala.impala_loss

    def loss(agent, rollout, *arguments, **settings):
        with torch.no_grad():
            output, _ = agent(rollout.inputs, rollout.state, rollout.is_first)
        torch.testing.assert_close(output.policy[:, :-1], rollout.policies, rtol=1e-3, atol=1e-4)
        compared.append((rollout.is_first[:, 1:].any(), rollout.policies.std() > 1e-3))
        return original(agent, rollout, *arguments, **settings)

    monkeypatch.setattr(impala, "impala_loss", loss)
    torch.manual_seed(0)
    trainer = ImpalaTrainer(config)
    try:
        for _ in range(6):
            trainer.step()
    finally:
        trainer.close()
    resets, said_something = zip(*compared, strict=True)
    assert any(resets) and not all(resets) and all(said_something)


@pytest.mark.long
@pytest.mark.parametrize("name", ATTENTION_AGENTS)
def test_a_run_resumes_bit_for_bit(name):
    """What a checkpoint holds, taken in the middle of an episode; that files keep it is tested elsewhere."""
    first, second = small(name).build(), small(name).build()
    for _ in range(2):
        first.step()
    tensors, data = first.save()
    second.model.load_state_dict(first.model.state_dict())
    second.load({key: tensor.clone() for key, tensor in tensors.items()}, data)
    for trainer in (first, second):
        torch.manual_seed(1)
        for _ in range(2):
            trainer.step()
    ours, theirs = (trainer.model.state_dict() for trainer in (first, second))
    assert all(torch.equal(ours[key], theirs[key]) for key in ours)
    assert first.evaluate() == second.evaluate()


@pytest.mark.long
def test_saved_agents_load_in_a_fresh_process(tmp_path):
    want = {}
    for name in ATTENTION_AGENTS:
        torch.manual_seed(0)
        agent = small(name).build_agent().eval()
        images = torch.randint(0, 256, (2, 3, 1, 42, 42), dtype=torch.uint8)
        told = torch.zeros(2, 3).long(), torch.randn(2, 3), torch.randn(2, 3, 3), torch.randn(2, 3, agent.feature_dim)
        agent.save(tmp_path / name)
        torch.save((images, *told), tmp_path / name / "inputs.pt")
        with torch.no_grad():
            output, _ = agent(ActorInputs(images, *told), agent.initial_state(2), torch.zeros(2, 3, dtype=torch.bool))
        want[name] = output.policy
    folders = [str(tmp_path / name) for name in ATTENTION_AGENTS]
    subprocess.run([sys.executable, "-c", LOADS, *folders], check=True)
    for name, policy in want.items():
        assert torch.equal(torch.load(tmp_path / name / "policy.pt"), policy)
