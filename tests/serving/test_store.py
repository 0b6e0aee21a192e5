import errno
import os
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from tally import Tally, literal

import recollect
from recollect.agents.config import ActorCriticConfig, DecisionTransformerConfig
from recollect.cores import CORES
from recollect.serving import Answer, RefusedError, ServingConfig, Step, StreamStore
from recollect.serving import spill as files_of_streams
from recollect.state import leaves

SMALL = CORES["hcam"](dim=16, num_layers=1, num_heads=2, memory_len=4, chunk_len=2, num_chunks=3, top_k=2)


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


class Picky(Tally):
    def unroll(self, inputs, state, is_first):
        if (inputs > 100).any():
            raise ValueError("too large")
        return super().unroll(inputs, state, is_first)


def row(*numbers):
    return {"inputs": np.array(numbers, dtype=np.float32)}


def refused(call, status):
    with pytest.raises(RefusedError) as found:
        call()
    assert found.value.status == status, found.value
    return str(found.value)


def step_one(store, id, *numbers, **options):
    [answer] = store.step([Step(id, row(*numbers), **options)])
    return answer


@pytest.mark.parametrize("seed", range(2))
def test_any_order_of_requests_gives_what_a_stream_per_client_gives(seed, tmp_path):
    """Fewer places than streams: most requests send another stream to disk."""
    draws, rollback = random.Random(seed), 3
    store = StreamStore(Tally(), ServingConfig(capacity=5, rollback=rollback, folder=tmp_path))
    histories, undo = {}, {}  # inputs that count, and how many can be undone
    for number in range(250):
        names, action = list(histories), draws.random()
        if (action < 0.1 and len(names) < 12) or not names:
            name = store.create(f"s{number}")
            histories[name], undo[name] = [], 0
            continue
        name = draws.choice(names)
        if action < 0.15 and len(names) < 12:
            new = store.fork(name, f"s{number}")
            histories[new], undo[new] = list(histories[name]), undo[name]
        elif action < 0.25:
            back = draws.randint(0, rollback)
            if back > undo[name]:
                refused(lambda name=name, back=back: store.roll_back(name, back), 409)
            else:
                assert store.roll_back(name, back) == len(histories[name]) - back
                histories[name], undo[name] = histories[name][: len(histories[name]) - back], undo[name] - back
        elif action < 0.3:
            store.evict(name)
        elif action < 0.32:
            store.restore(name)
        elif action < 0.34:
            store.delete(name)
            del histories[name], undo[name]
        else:
            asked = draws.sample(names, draws.randint(1, min(5, len(names))))
            steps = [Step(one, row(draws.randint(0, 999)), draws.random() < 0.1) for one in asked]
            for step, answer in zip(steps, store.step(steps), strict=True):
                own = histories[step.id]
                own.append((int(step.inputs["inputs"][0]), step.is_first or not own))
                undo[step.id] = min(undo[step.id] + 1, rollback)
                assert answer.outputs["outputs"].tolist() == literal(own) and answer.steps == len(own)
    assert store.counts["restored"] > 10 and store.counts["rolled back"] > 5
    assert len(store) == len(histories) and store.live <= 5
    for name, own in histories.items():
        assert (store.about(name)["steps"], store.about(name)["rollback"]) == (len(own), undo[name])
    store.close()
    again = StreamStore(Tally(), ServingConfig(capacity=5, rollback=rollback, folder=tmp_path))
    for name, own in histories.items():  # as after a restart of the server
        own.append((7, not own))
        assert step_one(again, name, 7).outputs["outputs"].tolist() == literal(own)


def test_a_model_of_floats_agrees_with_a_stream_per_client_up_to_rounding():
    torch.manual_seed(0)
    core = SMALL.build(3).double().eval()
    store = StreamStore(core, ServingConfig(capacity=4, rollback=2))
    alone = {name: core.stream(1) for name in "abcdef"}
    for name in alone:
        store.create(name)
    draws = np.random.default_rng(0)
    for _ in range(40):
        names = draws.choice(list(alone), 3, replace=False)
        inputs = {name: draws.normal(size=3) for name in names}
        answers = store.step([Step(str(name), {"inputs": inputs[name]}) for name in names])
        for name, answer in zip(names, answers, strict=True):
            np.testing.assert_allclose(answer.outputs["outputs"], alone[name].step(inputs[name][None])[0], atol=1e-9)
        [undone] = store.step([Step(str(names[0]), {"inputs": np.full(3, 9.0)})])
        assert store.roll_back(undone.id, 1) == undone.steps - 1


def test_what_comes_back_from_disk_is_the_same_to_the_bit():
    store = StreamStore(SMALL.build(3).eval(), ServingConfig(capacity=2, rollback=2))
    store.create("a")
    for number in range(7):
        step_one(store, "a", number, -number, 0.5)
    before = store._read([store._live["a"].row])
    store.evict("a")
    for name in ("b", "c"):
        store.create(name)
        step_one(store, name, 1, 1, 1)
    store.restore("a")
    after = store._read([store._live["a"].row])
    for old, new in zip(leaves(before), leaves(after), strict=True):
        assert torch.equal(old, new)


def test_nan_of_one_client_changes_no_bit_of_the_others():
    torch.manual_seed(0)
    core = SMALL.build(3).eval()
    outputs = []
    for broken in (0.25, np.nan):
        store, draws, found = StreamStore(core, ServingConfig(capacity=4)), np.random.default_rng(0), []
        for name in "abc":
            store.create(name)
        for number in range(12):
            inputs = draws.normal(size=(3, 3)).astype(np.float32)
            if number == 5:
                inputs[1] = broken
            answers = store.step([Step(name, {"inputs": seen}) for name, seen in zip("abc", inputs, strict=True)])
            found.append([answer.outputs["outputs"] for answer in answers])
        outputs.append(np.array(found))
    calm, hit = outputs
    assert np.array_equal(calm[:, [0, 2]], hit[:, [0, 2]])
    assert np.isnan(hit[5, 1]).all() and np.isfinite(hit[6:, 1]).all()


def test_new_weights_under_live_streams():
    store = StreamStore(Tally(2.0), ServingConfig(capacity=3, rollback=1))
    old = store.version
    for name in "ab":
        store.create(name)
        step_one(store, name, 5)
    store.evict("b")
    new = store.swap(Tally(3.0))
    assert new == store.version != old
    for name in "ab":
        answer = step_one(store, name, 4)
        assert answer.outputs["outputs"].tolist() == literal([(5, True), (4, False)], weight=3.0)
        assert answer.weights == new
    other = Tally()
    other.input_shape = (2,)
    assert "and inputs [2]; this stream is of Tally" in refused(lambda: store.swap(other), 409)
    line = refused(lambda: store.swap(SMALL.build(3)), 409)
    assert "of the same config" in line and store.version == new
    assert isinstance(step_one(store, "a", 1), Answer)


def test_steps_that_are_refused_change_nothing_and_nobody_else():
    store = StreamStore(Tally(), ServingConfig(capacity=3))
    store.create("a")
    store.create("b")
    answers = store.step([Step("a", row(1)), Step("x", row(1)), Step("b", row(2), at=7)])
    assert [getattr(answer, "status", 200) for answer in answers] == [200, 404, 409]
    assert "at=7: stream 'b' has taken 0 steps" in str(answers[2])
    [lost] = store.step([Step("b", {})])
    assert lost.status == 422 and "inputs.inputs: it is missing" in str(lost)
    both = store.step([Step("a", row(1)), Step("b", row(1, 2))])  # of a shape that could be repeated, or not
    assert isinstance(both[0], Answer) and "has shape [2], of [1]" in str(both[1])
    [number] = store.step([Step("b", {"inputs": np.float32(3)})])
    assert number.status == 422 and "take inputs from StreamStore.interface.parse" in str(number)
    assert store.about("b")["steps"] == 0
    assert step_one(store, "b", 2, at=0).outputs["outputs"].tolist() == literal([(2, True)])


def test_a_step_that_the_model_refuses_leaves_the_oldest_memory():
    store = StreamStore(Picky(), ServingConfig(capacity=1, rollback=2))
    store.create("a")
    for number in (1, 2, 3):
        step_one(store, "a", number)
    assert "too large" in str(step_one(store, "a", 1000))
    store.roll_back("a", 2)
    assert step_one(store, "a", 4).outputs["outputs"].tolist() == literal([(1, True), (4, False)])


def test_a_server_that_keeps_fewer_steps_than_the_one_before(tmp_path):
    store = StreamStore(Tally(), ServingConfig(capacity=1, rollback=4, folder=tmp_path))
    store.create("a")
    for number in range(6):
        step_one(store, "a", number)
    store.close()
    store = StreamStore(Tally(), ServingConfig(capacity=1, rollback=2, folder=tmp_path))
    assert "2 steps of stream 'a' can be rolled back" in refused(lambda: store.roll_back("a", 4), 409)
    assert store.roll_back("a", 2) == 4
    known = [(number, number == 0) for number in (0, 1, 2, 3, 9)]
    assert step_one(store, "a", 9).outputs["outputs"].tolist() == literal(known)


def test_what_a_server_that_was_killed_had_not_finished_is_no_stream(tmp_path):
    (tmp_path / ".writing-a.stream").write_bytes(b"unfinished")
    assert len(StreamStore(Tally(), ServingConfig(capacity=1, folder=tmp_path))) == 0


def test_one_stream_that_cannot_be_written_does_not_cost_the_others(tmp_path):
    store = StreamStore(Tally(), ServingConfig(capacity=3, folder=tmp_path))
    for name in "abc":
        store.create(name)
    (tmp_path / "a.stream").mkdir()
    assert "'a' cannot be written" in refused(store.close, 507)
    assert all((tmp_path / f"{name}.stream").is_file() for name in "bc")


def test_a_read_only_disk_stops_no_stream(monkeypatch, tmp_path):
    clock = Clock()
    store = StreamStore(Tally(), ServingConfig(capacity=2, folder=tmp_path, expire_seconds=9), clock)
    for name in "ab":
        store.create(name)
        step_one(store, name, 1)
    store.evict("a")

    def fail(path, missing_ok=False):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", fail)
        answers = store.step([Step("a", row(2)), Step("b", row(3))])
        assert [answer.steps for answer in answers] == [2, 2]
        clock.now = 10
        store.sweep()
        assert "make the server's folder writable" in refused(lambda: store.delete("b"), 507)
        assert len(store) == 2
    store.delete("b")
    store.evict("a")
    assert step_one(store, "a", 4).outputs["outputs"].tolist() == literal([(1, True), (2, False), (4, False)])


def test_ids_and_limits_are_refused_with_a_remedy():
    store = StreamStore(Tally(), ServingConfig(capacity=2, most_streams=3))
    for name in ("", "a/b", "../x", "a" * 65, 7):
        assert "give 1 to 64 letters, digits" in refused(lambda name=name: store.create(name), 400)
    store.create("a")
    assert "there is such a stream" in refused(lambda: store.create("a"), 409)
    assert "create it with POST /streams" in refused(lambda: store.about("b"), 404)
    assert "0 steps of stream 'a' can be rolled back" in refused(lambda: store.roll_back("a", 1), 409)
    store.create()
    store.create()
    assert "most_streams=3" in refused(store.create, 507)
    too_many = store.step([Step(name, row(1)) for name in [*store._live, *store._on_disk]])
    assert sorted(getattr(answer, "status", 200) for answer in too_many) == [200, 200, 507]


def test_a_full_disk_leaves_every_stream_as_it_is(monkeypatch, tmp_path):
    store = StreamStore(Tally(), ServingConfig(capacity=1, folder=tmp_path))
    store.create("a")
    step_one(store, "a", 3)

    def full(path, content):
        path.write_bytes(content[:10])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(recollect.files, "write_synced", full)
        line = refused(lambda: store.create("b"), 507)
        assert "memory is full (capacity=1)" in line and "No space left on device" in line and "delete streams" in line
        refused(lambda: store.evict("a"), 507)
        assert list(tmp_path.iterdir()) == [] and store.about("a")["in_memory"]
        assert step_one(store, "a", 4).outputs["outputs"].tolist() == literal([(3, True), (4, False)])
    store.create("b")
    assert not store.about("a")["in_memory"]


@pytest.mark.parametrize("damage", ["bit", "steps", "cut", "gone", "other"])
def test_a_damaged_file_is_recognised(damage, tmp_path):
    store = StreamStore(Tally(), ServingConfig(capacity=1, folder=tmp_path))
    store.create("a")
    step_one(store, "a", 3)
    store.evict("a")
    [path] = tmp_path.iterdir()
    content = bytearray(path.read_bytes())
    if damage == "bit":
        content[-3] ^= 1
    if damage == "steps":
        content = content.replace(b'steps\\": 1', b'steps\\": 0')
    if damage == "other":
        files_of_streams.write_stream(path, (torch.zeros(1, 4),), {})
    elif damage == "gone":
        path.unlink()
    else:
        path.write_bytes(content[: -5 if damage == "cut" else None])
    [answer] = store.step([Step("a", row(1))])
    assert answer.status == 410 and "delete the stream and create it again" in str(answer)
    store.delete("a")
    store.create("a")
    assert step_one(store, "a", 1).steps == 1


def test_unused_streams_go_to_disk_and_are_deleted_later():
    clock = Clock()
    store = StreamStore(Tally(), ServingConfig(capacity=3, evict_seconds=10, expire_seconds=100), clock)
    for name in "ab":
        store.create(name)
        step_one(store, name, 1)
    clock.now = 9
    step_one(store, "b", 1)
    clock.now = 12
    store.sweep()
    assert [store.about(name)["in_memory"] for name in "ab"] == [False, True]  # and both were asked for at 12
    clock.now = 111
    store.sweep()
    assert len(store) == 2
    clock.now = 112
    store.sweep()
    assert len(store) == 0 and store.counts["expired"] == 2
    refused(lambda: store.about("a"), 404)


def test_an_agent_reads_its_own_action_where_none_is_sent():
    """With the action sent, left out, and left out over a fork, a trip to disk and a rollback: the same."""
    model = recollect.load("model:t-maze-hcam")
    store, draws = StreamStore(model, ServingConfig(capacity=2, rollback=2)), np.random.default_rng(0)
    parse, action = store.interface.parse, 0
    for name in ("told", "own"):
        store.create(name)
    for number in range(12):
        seen = {"observation": draws.uniform(size=4).tolist(), "reward": 0.5}
        told = parse(seen | {"previous_action": action})
        first, second = store.step([Step("told", told), Step("own", parse(seen))])
        np.testing.assert_allclose(first.outputs["policy"], second.outputs["policy"], atol=1e-4)
        action = int(first.outputs["action"])
        if number == 4:
            store.fork("own", "copy")
            store.delete("own")
            store.fork("copy", "own")
            store.delete("copy")
        if number == 7:
            store.step([Step("own", parse(seen))])
            store.roll_back("own", 1)
            store.evict("own")


def test_a_symbol_that_an_agent_does_not_have_is_refused_alone():
    agent = ActorCriticConfig(width=16).build(SMALL, Box(0, 10, (5, 5), np.int64), Discrete(3))
    store = StreamStore(agent, ServingConfig(capacity=1))
    for number in (-1, 11):
        given = {"observation": np.full((5, 5), number), "reward": 0.0}
        assert "give integers from 0 to 10" in refused(lambda given=given: store.interface.parse(given), 422)


def test_inputs_are_checked_against_the_model():
    store = StreamStore(recollect.load("model:t-maze-hcam"), ServingConfig(capacity=1))
    good = {"observation": [0, 0.5, 0, 1]}
    cases = {
        "there is no such input": good | {"observatoin": 1},
        "give one row of shape [4]": {"observation": [1, 2]},
        "observation[2]=nan: send finite numbers": {"observation": [0, 0, float("nan"), 0]},
        "observation[1]=1e+300: send finite": {"observation": [0, 1e300, 0, 0]},
        "no numbers": {"observation": ["a", "b", "c", "d"]},
        "lists of different lengths": {"observation": [[1], [1, 2]]},
        "no integers": good | {"previous_action": 1.5},
        "give integers from 0 to 3": good | {"previous_action": 4},
        "give an object with observation, previous_action, reward": [0, 0, 0, 0],
    }
    for line, given in cases.items():
        assert line in refused(lambda given=given: store.interface.parse(given), 422)
    assert store.interface.parse(good)["observation"].dtype == np.float32
    with pytest.raises(ValueError, match="serve the model in float32"):
        StreamStore(Tally().bfloat16())
    with pytest.raises(ValueError, match="window_ms=inf: give at most"):
        ServingConfig(window_ms=float("inf"))
    with pytest.raises(ValueError, match="cannot be served"):
        StreamStore(DecisionTransformerConfig(width=16, context=4).build(SMALL, Box(-1, 1, (2,)), Discrete(2)))
