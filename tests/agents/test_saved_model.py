"""Model folders: every agent comes back equal, in another process; damaged and hostile folders give one line."""

import importlib
import json
import pickle
import sys

import pytest
import torch
from gymnasium import spaces
from safetensors.torch import load_file, save_file, save_model

import recollect
from recollect.agents import (
    AGENTS,
    ActivityDetectorConfig,
    ActorCriticConfig,
    DecisionTransformerConfig,
    SequenceClassifierConfig,
    SequenceModel,
    SequenceModelConfig,
    SiTConfig,
)
from recollect.agents.model_spec import ModelSpec
from recollect.agents.saved_model import load_folder, load_spec
from recollect.cores import CORES
from recollect.encoders import ENCODERS
from recollect.tasks.streams.contract import TaskSpec

GRU = CORES["gru"](dim=6, num_layers=1)
ATTENTION = CORES["causal-transformer"](dim=8, num_layers=1, num_heads=2, positions="none")
READER = ENCODERS["transformer"](num_layers=1, num_heads=2)
BOX, BUTTONS = spaces.Box(-1, 1, (3,)), spaces.Discrete(4)
MODELS = {
    "sequence-model": lambda: SequenceModelConfig(embedding_dim=6).build(GRU, num_classes=3, input_dim=2),
    "sequence-classifier": lambda: SequenceClassifierConfig(embedding_dim=8).build(
        READER, TaskSpec(vocabulary=5, num_classes=3, length=12)
    ),
    "sit": lambda: SiTConfig(embedding_dim=8).build(READER, TaskSpec(input_dim=12, num_classes=1, length=16)),
    "actor-critic": lambda: ActorCriticConfig(width=6).build(GRU, BOX, BUTTONS, num_labels=3),
    "decision-transformer": lambda: DecisionTransformerConfig(width=8, context=4).build(ATTENTION, BOX, BUTTONS),
    "activity-detector": lambda: ActivityDetectorConfig(width=8).build(
        GRU, class_names=("run", "jump"), frame_shape=None, feature_dim=5
    ),
}


def test_there_is_one_of_each_agent():
    assert list(MODELS) == list(AGENTS)


@pytest.mark.parametrize("kind", MODELS)
def test_every_agent_comes_back_with_its_weights_and_spec(kind, tmp_path):
    model = MODELS[kind]()
    spec = ModelSpec(title="a · b", class_names=("x", "y"), run={"step": 3, "versions": {"torch": "2"}})
    model.save(tmp_path / "model", spec)
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == [
        "config.json", "spec.json", "weights.safetensors"
    ]  # fmt: skip
    loaded = recollect.load(tmp_path / "model")
    assert type(loaded) is type(model) and not loaded.training and loaded.describe() == model.describe()
    found, weights = loaded.state_dict(), model.state_dict()
    assert list(found) == list(weights) and all(torch.equal(found[name], weights[name]) for name in weights)
    assert loaded.spec.title == "a · b" and loaded.spec.run == spec.run
    assert loaded.spec.library == recollect.__version__ and load_spec(tmp_path / "model") == loaded.spec
    loaded.save(tmp_path / "again")  # keeps the spec
    for name in ("config.json", "spec.json", "weights.safetensors"):
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "model" / name).read_bytes()


def all_dtypes(model):
    return {name: tensor.dtype for name, tensor in (*model.named_parameters(), *model.named_buffers())}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("kind", MODELS)
def test_every_agent_comes_back_in_the_dtype_it_was_saved_in(kind, dtype, tmp_path):
    model = MODELS[kind]().to(dtype)
    model.save(tmp_path)
    loaded = recollect.load(tmp_path)
    assert all_dtypes(loaded) == all_dtypes(model) and dtype in all_dtypes(loaded).values()
    weights = model.state_dict()
    assert all(torch.equal(tensor, weights[name]) for name, tensor in loaded.state_dict().items())


def test_parts_with_a_dtype_of_their_own_keep_it(tmp_path):
    model = ActorCriticConfig(width=6, norm_values=True).build(GRU, BOX, BUTTONS)
    model.bfloat16().value_head.double()
    model.save(tmp_path)
    loaded = recollect.load(tmp_path)
    assert all_dtypes(loaded) == all_dtypes(model)
    assert {torch.bfloat16, torch.float64, torch.int64} <= set(all_dtypes(loaded).values())


def test_class_names_of_indices():
    spec = ModelSpec(class_names=("bird", "cat"))
    assert spec.name_classes(1) == "cat"
    assert spec.name_classes(torch.tensor([[0, 1], [1, 1]])) == [["bird", "cat"], ["cat", "cat"]]
    with pytest.raises(ValueError, match="indices: 2 is no class; give whole numbers below 2"):
        spec.name_classes([0, 2])
    with pytest.raises(ValueError, match="this model's classes have no names"):
        ModelSpec().name_classes(0)


def tie(model):
    model.readout.weight = model.encoder.weight
    return model


def square():
    return SequenceModelConfig(embedding_dim=6).build(GRU, num_classes=6, input_dim=6)


def test_a_tensor_with_two_names_is_saved_under_both(tmp_path):
    model = tie(square())
    model.save(tmp_path)
    loaded = load_folder(tmp_path)
    assert torch.equal(loaded.readout.weight, model.encoder.weight)
    assert torch.equal(loaded.encoder.weight, model.encoder.weight)


def test_two_values_for_a_tensor_with_two_names_are_refused(tmp_path, monkeypatch):
    square().save(tmp_path)
    monkeypatch.setattr(SequenceModel, "from_description", classmethod(lambda cls, description, trust: tie(square())))
    with pytest.raises(
        ValueError, match=r"(encoder|readout)\.weight is one tensor with another name, whose values differ"
    ):
        load_folder(tmp_path)
    edit_weights(lambda tensors: tensors.pop("readout.weight"))(tmp_path)  # as earlier versions wrote it
    assert load_folder(tmp_path).readout.weight is not None


def test_folders_of_older_versions_load_with_their_class(tmp_path):
    model = MODELS["actor-critic"]()
    (tmp_path / "model.json").write_text(json.dumps(model.describe()))
    save_model(model, str(tmp_path / "weights.safetensors"))
    loaded = recollect.ActorCritic.load(tmp_path)
    assert all(torch.equal(a, b) for a, b in zip(loaded.parameters(), model.parameters(), strict=True))
    with pytest.raises(ValueError, match="older version: load it with the class of its model"):
        recollect.load(tmp_path)


def edit(name, change):
    def apply(folder):
        data = json.loads((folder / name).read_text())
        change(data)
        (folder / name).write_text(json.dumps(data))

    return apply


def write(name, content):
    return lambda folder: (folder / name).write_bytes(content)


def edit_weights(change):
    def apply(folder):
        tensors = load_file(folder / "weights.safetensors")
        change(tensors)
        save_file(tensors, folder / "weights.safetensors")

    return apply


class Hostile:
    """Would write a file when it is unpickled."""

    def __reduce__(self):
        return (exec, ("open('unpickled', 'w').close()",))


def truncate(folder):
    path = folder / "weights.safetensors"
    path.write_bytes(path.read_bytes()[:-20])


DAMAGE = {
    "no weights": (lambda folder: (folder / "weights.safetensors").unlink(), r"weights\.safetensors does not exist"),
    "no spec": (lambda folder: (folder / "spec.json").unlink(), r"spec\.json does not exist"),
    "no config": (lambda folder: (folder / "config.json").unlink(), r"config\.json does not exist"),
    "truncated weights": (truncate, r"weights\.safetensors cannot be used .*give a folder"),
    "pickled weights": (write("weights.safetensors", pickle.dumps(Hostile())), r"weights\.safetensors cannot be used"),
    "a header of 2**60 bytes": (write("weights.safetensors", b"\0" * 7 + b"\x10{}"), r"safetensors cannot be used"),
    "no JSON": (write("config.json", b"{"), r"config\.json is not JSON"),
    "bytes": (write("spec.json", b"\xff\xfe"), r"spec\.json is not JSON"),
    "deep JSON": (write("spec.json", b"[" * 100_000), r"spec\.json is not JSON"),
    "a list": (write("config.json", b"[]"), r"config\.json holds \[\], not an object"),
    "the config of a run": (edit("config.json", lambda data: data.pop("kind")), "does not say which model"),
    "an unknown kind": (edit("config.json", lambda data: data.update(kind="sequence-modle")), "did you mean 'sequence"),
    "a later format": (edit("config.json", lambda data: data.update(format=2)), "format=2, .*newer recollect-torch"),
    "no sizes": (edit("spec.json", lambda data: data.pop("sizes")), r"spec\.json holds None"),
    "a size is missing": (edit("spec.json", lambda data: data["sizes"].pop("input_dim")), r"spec\.json has no 'input"),
    "a size is text": (edit("spec.json", lambda data: data["sizes"].update(input_dim="2")), r"config\.json .*give"),
    "a name is a number": (edit("spec.json", lambda data: data.update(class_names=[1])), r"spec\.json: ModelSpec"),
    "an unknown field": (edit("spec.json", lambda data: data.update(run_this="rm")), r"ModelSpec\.run_this"),
    "an unknown core": (edit("config.json", lambda data: data["core"].update(kind="gruu")), "did you mean 'gru'"),
    "a stranger's core": (
        edit("config.json", lambda data: data["core"].update(kind="stranger.cores:Core")),
        r"config\.json: .*cannot import it without --trust \(trust=True\)",
    ),
    "a core of another size": (edit("config.json", lambda data: data["core"].update(dim=7)), "has shape .*not"),
    "a huge core": (edit("config.json", lambda data: data["core"].update(dim=10**6)), "larger than the weights"),
    "an impossible core": (edit("config.json", lambda data: data["core"].update(dim=10**30)), r"config\.json"),
    "many layers": (edit("config.json", lambda data: data["core"].update(num_layers=10**9)), "larger than the weights"),
    "a huge input": (edit("spec.json", lambda data: data["sizes"].update(input_dim=10**12)), "larger than the weights"),
    "a missing weight": (edit_weights(lambda tensors: tensors.pop("norm.bias")), r"norm\.bias is missing"),
    "a renamed weight": (
        edit_weights(lambda tensors: tensors.update({"../norm": tensors.pop("norm.bias")})),
        r"norm\.bias is missing; \.\./norm is not part of the model",
    ),
    "a wrong shape": (
        edit_weights(lambda tensors: tensors.update({"norm.bias": torch.zeros(5)})),
        r"norm\.bias has shape \[5\], not \[6\]",
    ),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_or_hostile_folder_gives_one_line_that_names_it(damage, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    MODELS["sequence-model"]().save(tmp_path / "model")
    break_it, message = DAMAGE[damage]
    break_it(tmp_path / "model")
    with pytest.raises(ValueError, match=message) as caught:
        recollect.load(tmp_path / "model")
    assert str(tmp_path) in str(caught.value) and "\n" not in str(caught.value)
    assert not (tmp_path / "unpickled").exists()


def test_a_world_that_needs_more_memory_than_there_is_is_refused(tmp_path):
    MODELS["actor-critic"]().save(tmp_path)
    edit("spec.json", lambda data: data["sizes"]["observation_space"].update(shape=[10**6, 10**6]))(tmp_path)
    with pytest.raises(ValueError, match="shape="):
        recollect.load(tmp_path)
    edit("spec.json", lambda data: data["sizes"]["observation_space"].update(shape=[3], dtype="O"))(tmp_path)
    with pytest.raises(ValueError, match="dtype='O': give numbers"):
        recollect.load(tmp_path)


def test_what_is_no_model_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"there is no such folder: give a model folder or a run directory"):
        recollect.load(tmp_path / "nothing")
    with pytest.raises(ValueError, match=r"config\.json does not exist"):
        recollect.load(tmp_path)
    with pytest.raises(ValueError, match="source='hubb:me/model': there is no such folder"):
        recollect.load("hubb:me/model")
    MODELS["sit"]().save(tmp_path / "sit")
    with pytest.raises(ValueError, match="holds a model of class SiT, not ActorCritic"):
        recollect.ActorCritic.load(tmp_path / "sit")


CORE_FILE = '''
from dataclasses import dataclass
from recollect.cores.recurrent import GRUConfig

@dataclass(frozen=True, kw_only=True)
class MyConfig(GRUConfig):
    """A user-defined core."""
'''


def test_a_user_defined_core_needs_trust(tmp_path, monkeypatch):
    (tmp_path / "my_cores.py").write_text(CORE_FILE)
    monkeypatch.syspath_prepend(tmp_path)
    my_cores = importlib.import_module("my_cores")
    SequenceModelConfig().build(my_cores.MyConfig(dim=6), num_classes=2, input_dim=2).save(tmp_path / "model")
    del sys.modules["my_cores"]  # as in another process
    with pytest.raises(ValueError, match=r"config\.json: CoreConfig\.kind='my_cores:MyConfig': .*without --trust"):
        recollect.load(tmp_path / "model")
    assert "my_cores" not in sys.modules
    assert type(recollect.load(tmp_path / "model", trust=True).core_config).__name__ == "MyConfig"
    del sys.modules["my_cores"]


def test_a_folder_that_names_the_command_line_as_its_core_does_not_run_it(tmp_path):
    MODELS["actor-critic"]().save(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["core"]["kind"] = "recollect.__main__:main"
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=r"config\.json: CoreConfig\.kind='recollect.__main__:main'"):
        recollect.load(tmp_path)
