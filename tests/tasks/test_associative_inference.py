import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch

from recollect.tasks.streams.associative_inference import TYPES, AssociativeInference, last_link, read_published

SMALL = AssociativeInference(num_chains=5, width=12)
LONG = replace(SMALL, chain=4)


def draw(task, rows=200, seed=0):
    return task.sample(rows, torch.Generator().manual_seed(seed))


def named(batch):
    """Rows of the batch with a number for every item: pairs, cue, left, right."""
    for row in batch.inputs:
        names = {}
        shown = [names.setdefault(item.numpy().tobytes(), len(names)) for item in row]
        yield [tuple(shown[i : i + 2]) for i in range(0, len(shown) - 3, 2)], *shown[-3:]


def links(pairs):
    found = {}
    for one, two in pairs:
        found.setdefault(one, set()).add(two)
        found.setdefault(two, set()).add(one)
    return found


def from_one_pair(pairs, cue, left, right):
    """The answer of one who looks for a single pair that holds the cue and a choice; None if there is none."""
    for answer, choice in enumerate((left, right)):
        if (cue, choice) in pairs or (choice, cue) in pairs:
            return answer
    return None


def reachable(pairs, cue):
    linked, reached, waiting = links(pairs), {cue}, [cue]
    while waiting:
        new = linked.get(waiting.pop(), set()) - reached
        reached |= new
        waiting += new
    return reached


def from_chains(pairs, cue, left, right):
    """The answer of one who follows pairs from the cue."""
    reached = reachable(pairs, cue)
    assert (left in reached) != (right in reached)
    return int(right in reached)


def test_sizes_are_the_published_ones():
    three, four = AssociativeInference(), AssociativeInference(chain=4)
    assert (three.num_pairs, len(TYPES[3]) * three.num_chains) == (32, 48)
    assert (four.num_pairs, len(TYPES[4]) * four.num_chains) == (48, 96)
    batch = draw(three, 2)
    assert batch.inputs.shape == (2, 67, 1000) and three.spec.length == 67
    assert torch.allclose(batch.inputs.norm(dim=-1), torch.ones(2, 67))
    assert batch.score_mask.sum(1).tolist() == [1, 1] and batch.score_mask[:, -1].all()


@pytest.mark.parametrize("task", [SMALL, LONG], ids=["3", "4"])
def test_pairs_fill_chunks_of_two_and_form_chains(task):
    for pairs, *_ in named(draw(task)):
        assert len(set(map(frozenset, pairs))) == len(pairs) == task.num_pairs
        linked = links(pairs)
        assert len(linked) == task.num_chains * task.chain
        ends = [item for item, others in linked.items() if len(others) == 1]
        assert len(ends) == 2 * task.num_chains and all(len(others) <= 2 for others in linked.values())


@pytest.mark.parametrize("task", [SMALL, LONG], ids=["3", "4"])
@pytest.mark.parametrize("kind", TYPES[4])
def test_only_inference_needs_two_pairs(task, kind):
    if kind not in TYPES[task.chain]:
        return
    task = replace(task, types=(kind,))
    batch = draw(task)
    answers = batch.targets[:, -1].tolist()
    assert [from_chains(*row) for row in named(batch)] == answers
    single = [from_one_pair(*row) for row in named(batch)]
    direct = ord(kind[1]) - ord(kind[0]) == 1
    assert single == (answers if direct else [None] * len(answers))


@pytest.mark.parametrize("task", [SMALL, LONG], ids=["3", "4"])
def test_source_shows_the_right_item_in_the_last_pair_needed(task):
    batch = draw(task, 400)
    assert (batch.source[:, :-1] == -1).all()
    for row, (pairs, cue, *choices) in enumerate(named(batch)):
        source, right = int(batch.source[row, -1]), choices[int(batch.targets[row, -1])]
        pair = pairs[source // 2]
        assert pair[source % 2] == right
        # Without the pair no way leads from the cue to the right item.
        assert right not in reachable(pairs[: source // 2] + pairs[source // 2 + 1 :], cue)
        memory = batch.inputs[row, :-3].reshape(-1, 2, task.width).numpy()
        trial = batch.inputs[row, -3:].numpy()
        assert last_link(memory, trial[0], trial[1 + int(batch.targets[row, -1])]) == source


def test_types_are_asked_alike():
    # Steps from the cue to the right item tell direct trials from inferences.
    batch = draw(LONG, 900)
    lengths = torch.zeros(4)
    for row, (pairs, cue, *choices) in enumerate(named(batch)):
        linked, reached = links(pairs), {cue}
        for length in itertools.count(1):
            reached |= set().union(*(linked[item] for item in reached))
            if choices[int(batch.targets[row, -1])] in reached:
                lengths[length] += 1
                break
    assert torch.allclose(lengths / 900, torch.tensor([0, 3, 2, 1]) / 6, atol=0.05)
    assert SMALL.asked == TYPES[3] and replace(LONG, types=("BD",)).asked == ("BD",)


def test_lure_and_right_item_are_alike():
    """The lure has the same letter, so by what it is linked to (1 or 2 others) it cannot be told."""
    for pairs, _, left, right in named(draw(LONG)):
        linked = links(pairs)
        assert len(linked[left]) == len(linked[right])


def test_without_the_pairs_the_answer_is_a_coin():
    task = replace(SMALL, types=("AC",), width=6)

    def features(batch):
        cue, left, right = batch.inputs[:, -3:].double().unbind(1)
        bilinear = [(a[:, :, None] * b[:, None]).flatten(1) for a, b in ((cue, left), (cue, right), (left, right))]
        return torch.cat((cue, left, right, *bilinear, torch.ones_like(cue[:, :1])), 1)

    train, test = draw(task, 20_000), draw(task, 20_000, seed=1)
    weights = torch.linalg.lstsq(features(train), train.targets[:, -1:].double()).solution
    said = features(test) @ weights > 0.5
    score = (said[:, 0] == test.targets[:, -1]).double().mean()
    assert abs(score - 0.5) < 4 * 0.5 / 20_000**0.5
    # Not a matter of the learner: exchanging left and right exchanges the answers, and both are as likely.
    assert abs(test.targets[:, -1].double().mean() - 0.5) < 4 * 0.5 / 20_000**0.5


# --- published arrays ---


def save(folder, task, split="valid", episodes=3, form="npy"):
    """Episodes in the published form, made of random items."""
    random = np.random.default_rng(0)
    memory, trials, answers, kinds = [], [], [], []
    for _ in range(episodes):
        items = random.normal(size=(task.num_chains, task.chain, task.width)).astype(np.float32)
        memory.append(np.stack([c[i : i + 2] for c in items for i in range(task.chain - 1)]))
        rows = []
        for (kind, name), chain in itertools.product(enumerate(TYPES[task.chain], 1), range(task.num_chains)):
            cue, letter = ("ABCD".index(x) for x in name)
            answer = int(random.integers(2))
            choices = [items[chain, letter], items[(chain + 1) % task.num_chains, letter]]
            rows.append((np.stack([items[chain, cue], *(choices[::-1] if answer else choices)]), answer, kind))
        trials.append(np.stack([row[0] for row in rows]))
        answers.append([row[1] for row in rows])
        kinds.append([row[2] for row in rows])
    arrays = {
        "memory": np.stack(memory),
        "trials": np.stack(trials),
        "correct_answer": np.array(answers),
        "trial_type": np.array(kinds),
    }
    here = folder / f"length{task.chain}" / split
    here.mkdir(parents=True)
    if form == "npz":
        for index in range(episodes):
            np.savez(here / f"trials-{index:05d}.npz", **{name: array[index] for name, array in arrays.items()})
    else:
        for name, array in arrays.items():
            np.save(here / f"{name}.npy", array)
    return arrays


@pytest.mark.parametrize("form", ["npy", "npz"])
@pytest.mark.parametrize("task", [SMALL, LONG], ids=["3", "4"])
def test_published_episodes_are_read(tmp_path, task, form):
    arrays = save(tmp_path, task, form=form)
    for name, array in arrays.items():
        assert np.array_equal(getattr(read_published(str(tmp_path), "valid", task.chain), name), array)
    task = replace(task, folder=str(tmp_path), split="valid")
    for kind in TYPES[task.chain]:
        batch = draw(replace(task, types=(kind,)), 24)
        assert batch.inputs.shape == (24, task.spec.length, task.width) and batch.inputs.dtype == torch.float32
        assert [from_chains(*row) for row in named(batch)] == batch.targets[:, -1].tolist()
        for row, (pairs, cue, *choices) in enumerate(named(batch)):
            source = int(batch.source[row, -1])
            assert pairs[source // 2][source % 2] == choices[int(batch.targets[row, -1])]
            assert kind in ("AC", "BD", "AD") or cue in pairs[source // 2]
    assert torch.equal(draw(task).inputs, draw(task).inputs)


def test_a_way_that_does_not_exist_has_no_source():
    items = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    assert last_link(items[:4].reshape(2, 2, 3), items[0], items[2]) == -1
    assert last_link(items[:4].reshape(2, 2, 3), items[4], items[2]) == -1


def test_missing_episodes_are_explained(tmp_path):
    with pytest.raises(ValueError, match=r"gs://deepmind-memo/length3/test .100 TFRecord shards"):
        draw(replace(SMALL, folder=str(tmp_path), split="test"))


def test_a_folder_in_the_users_home_is_found(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    save(tmp_path / "memo", SMALL, "train")
    draw(replace(SMALL, folder="~/memo"))


def test_episodes_of_another_shape_are_named(tmp_path):
    save(tmp_path, SMALL, "train")
    task = replace(SMALL, folder=str(tmp_path))
    with pytest.raises(ValueError, match=r"has 10 pairs of width 12.*width=13"):
        draw(replace(task, width=13))
    here = tmp_path / "length3" / "train"
    np.save(here / "correct_answer.npy", np.full((3, 15), 2))
    read_published.cache_clear()
    with pytest.raises(ValueError, match=r"correct_answer has 2\.\.2"):
        draw(task)
    np.save(here / "correct_answer.npy", np.zeros((3, 14)))
    with pytest.raises(ValueError, match="trials is"):
        draw(task)
    (here / "trials.npy").unlink()
    np.savez(here / "one.npz", memory=np.zeros((10, 2, 12)))
    with pytest.raises(ValueError, match="no array 'trials'"):
        draw(task)


def test_damaged_files_and_odd_shards_are_named(tmp_path):
    save(tmp_path / "shards", SMALL, "train", form="npz")
    save(tmp_path / "whole", SMALL, "train")
    second, first = (tmp_path / "shards" / "length3" / "train" / f"trials-0000{n}.npz" for n in (1, 0))
    arrays = dict(np.load(second))
    np.savez(second, **{**arrays, "memory": arrays["memory"][..., :5]})
    with pytest.raises(ValueError, match=r"trials-00001.npz: memory is \[1, 10, 2, 5\], and that of trials-00000"):
        draw(replace(SMALL, folder=str(tmp_path / "shards")))
    first.write_bytes(first.read_bytes()[:-40])
    with pytest.raises(ValueError, match=r"trials-00000.npz: it is damaged or no .npz file"):
        draw(replace(SMALL, folder=str(tmp_path / "shards")))
    array = tmp_path / "whole" / "length3" / "train" / "memory.npy"
    array.write_bytes(array.read_bytes()[:-40])
    with pytest.raises(ValueError, match=r"memory.npy: it is damaged or no .npy file"):
        draw(replace(SMALL, folder=str(tmp_path / "whole")))


def test_an_episode_without_the_wanted_type_is_named(tmp_path):
    save(tmp_path, SMALL, "train")
    np.save(tmp_path / "length3" / "train" / "trial_type.npy", np.ones((3, 15), dtype=int))
    with pytest.raises(ValueError, match="fewer such trials"):
        draw(replace(SMALL, folder=str(tmp_path), types=("AC",)))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"chain": 5}, "chain=5"),
        ({"num_chains": 1}, "num_chains=1"),
        ({"width": 0}, "width=0"),
        ({"types": ("AD",)}, "types='AD': not a type of chains of 3"),
        ({"types": ("AB", "AB")}, "name each type once"),
        ({"split": "dev"}, "split='dev'"),
        ({"form": "both"}, "form='both'"),
        ({"num_chains": 5, "trials": 16}, "trials=16: give 1 to 15"),
    ],
)
def test_bad_fields_are_named(fields, message):
    with pytest.raises(ValueError, match=message):
        AssociativeInference(**fields)


@pytest.mark.parametrize("form", ["streamed", "paper"])
@pytest.mark.parametrize("task", [SMALL, LONG], ids=["3", "4"])
def test_all_trials_of_a_memory_at_once(task, form):
    task = replace(task, form=form, trials=0)
    batch = draw(task, 20)
    trials, start = task.num_chains * len(TYPES[task.chain]), 2 * task.num_pairs
    assert task.num_trials == trials and batch.inputs.shape[1] == start + 3 * trials == task.spec.length
    assert batch.score_mask.sum(1).tolist() == [trials] * 20 and batch.score_mask[:, start + 2 :: 3].all()
    firsts = batch.is_first.sum(1).unique().tolist()
    assert firsts == [1 if form == "streamed" else 1 + trials]
    for row in range(20):
        asked = set()
        for trial in range(trials):
            step = start + 3 * trial
            one = torch.cat((batch.inputs[row, :start], batch.inputs[row, step : step + 3]))
            answer = batch.targets[row, step + 2].item()
            [(pairs, *probe)] = named(batch._replace(inputs=one[None]))
            assert from_chains(pairs, *probe) == answer
            asked.add((probe[0], probe[1 + answer]))
            source = batch.source[row, step + 2].item()
            assert torch.equal(batch.inputs[row, source], batch.inputs[row, step + 1 + answer])
        assert len(asked) == trials, "no trial is asked twice"
