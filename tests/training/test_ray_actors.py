"""Actors of Ray: the numbers of the synchronous schedule, the right memory in every row, and what killing does."""

import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

ray = pytest.importorskip("ray")

from small_worlds import CueConfig, StepsConfig  # noqa: E402
from test_impala_state import checked, config  # noqa: E402, F401 (a fixture)
from test_ray_kills import descendants  # noqa: E402

from recollect.runs.errors import WorldError  # noqa: E402
from recollect.training import LossConfig, ReuseConfig, ScheduleConfig  # noqa: E402
from recollect.training.impala.trainer import ImpalaTrainer  # noqa: E402

pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::FutureWarning")]
IN_TURN = ScheduleConfig(mode="asynchronous", engine="ray", queue_length=1, timeout=600.0)
THREE = replace(IN_TURN, actors=3, queue_length=6)


@pytest.fixture(scope="module", autouse=True)
def cluster():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(
            "PYTHONPATH", os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
        )  # for the worlds of tests
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_raylet_start_wait_time_s", "600")
        ray.init(address="local", num_cpus=4, include_dashboard=False, log_to_driver=False, object_store_memory=10**8)
        yield
        ray.shutdown()


def trainer(schedule, **settings):
    torch.manual_seed(0)
    return ImpalaTrainer(replace(config("synchronous", **settings), schedule=schedule))


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_one_rollout_at_a_time_gives_the_numbers_of_the_synchronous_schedule_also_after_a_resume():
    plain = trainer(ScheduleConfig())
    apart = trainer(IN_TURN)
    for _ in range(4):
        one, other = plain.step(), apart.step()
        assert all(one[name] == other[name] for name in one if name != "frames_per_second")
    tensors, data = apart.save()
    assert same(plain.save()[0], tensors) and data["incarnations"] == [0] and data["behind"] == [0]
    again = trainer(IN_TURN)
    again.model.load_state_dict(apart.model.state_dict())
    again.load({name: tensor.clone() for name, tensor in tensors.items()}, data)
    apart.close()
    for _ in range(3):
        plain.step(), again.step()
    assert same(plain.model.state_dict(), again.model.state_dict()) and same(plain.save()[0], again.save()[0])
    assert again.save()[1]["incarnations"] == [1]
    again.close(), plain.close()


def test_killed_actors_are_replaced_and_every_row_has_its_memory(checked):  # noqa: F811
    made = trainer(THREE)
    with torch.no_grad():
        made.model.policy_head[-1].weight.copy_(torch.tensor([[1.0], [0.0]]))
        made.model.core.weight.zero_()
    made.weights.publish(made.model, 0)
    tickets, take, valid = [], made.actors.take, 0

    def taking():
        delivery = take()
        tickets.append(delivery.ticket)
        nonlocal valid
        valid += int(delivery.rollout.valid.sum())
        return delivery

    made.actors.take = taking
    for step in range(40):
        if step in (8, 20):
            os.kill(descendants()[0], signal.SIGKILL)
        metrics = made.step()
    assert metrics["actors_replaced"] == 2 and metrics["environment_steps"] == valid
    assert len(set(tickets)) == len(tickets) == 40
    assert checked["carried"] > 20 and checked["rows"] == 40 * 6 * 6
    assert 0 <= metrics["actor_wait"] <= 1 and 0 <= metrics["learner_wait"] <= 1 and metrics["bytes_per_second"] > 0
    made.close()


def test_what_travels_can_be_made_smaller():
    exact = trainer(replace(IN_TURN, snapshot_every=2))
    first = exact.actors.take()
    exact.actors.give_back(first)
    second = exact.actors.take()
    assert first.saved is None and second.saved is not None and second.nbytes > first.nbytes
    exact.close()
    empty = trainer(replace(IN_TURN, snapshot_every=9), reuse=ReuseConfig(learner_memory="empty"))
    delivery = empty.actors.take()
    assert delivery.rollout.state == () and delivery.nbytes < first.nbytes
    empty.actors.give_back(delivery)
    assert empty.step()["policy_lag"] == 0
    empty.close()


def test_a_world_that_fails_stops_the_run_with_its_own_words():
    made = ImpalaTrainer(replace(config("synchronous"), world=CueConfig(fault="raise"), schedule=THREE))
    with pytest.raises(WorldError, match=r"actor [012]: OSError: row 3 fell over") as caught:
        for _ in range(20):
            made.step()
    assert caught.value.remedy == WorldError.remedy
    made.close()
    with pytest.raises(ValueError, match="label_cost=1"):
        ImpalaTrainer(
            replace(
                config("synchronous"),
                world=StepsConfig(),
                schedule=IN_TURN,
                loss=LossConfig(supervision=replace(LossConfig().supervision, label_cost=1.0)),
            )
        )
