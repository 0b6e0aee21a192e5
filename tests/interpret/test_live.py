"""The agent in the page: its step as ONNX, the world's twin, and edits of memory, against Python's."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from browser import CHROMIUM, Browser

from recollect.agents.contract import ActorInputs
from recollect.export.trace import ONNX_PACKAGES
from recollect.interpret.episodes import record_episode
from recollect.interpret.live import page_text, require_live
from recollect.interpret.onnx_step import AXES, ExportedStep, export_step, live_step
from recollect.interpret.onnxruntime_web import BINARY, SCRIPT, Runtime, find_runtime
from recollect.layers.tap import listen
from recollect.recipes.agent_sizes import lite_core
from recollect.recipes.hierarchical_transformer_memory import short_t_maze
from recollect.state import leaves, map_state
from recollect.tasks.worlds.arcade.catch import CatchConfig
from recollect.tasks.worlds.t_maze import TMazeConfig
from recollect.training import FRESH_SEED
from tiers import only

MAZE = TMazeConfig(length=9, slack=7, penalty=0.05)
STEPS = 50


def _agent(core, world=MAZE):
    """Untrained; its policy is far from uniform, so that memories show in it."""
    memory = lite_core(core, steps=20, window=4, chunk=4, top_k=2)
    memory = replace(memory, num_layers=1) if core != "memoryless" else memory
    config = replace(short_t_maze(core), core=memory, world=world)
    torch.manual_seed(3)
    agent = config.build_agent().eval()
    with torch.no_grad():
        agent.policy_head[-1].weight.mul_(200)
    return agent


@cache
def _exported(core):
    """An agent and its step: seconds."""
    for package in ONNX_PACKAGES:
        pytest.importorskip(package)
    agent = _agent(core)
    return agent, export_step(agent)


@pytest.mark.parametrize("core", only({"gru"}, [*AXES, "gru", "lstm", "ttm"]))
def test_the_exported_step_equals_the_stream(core):
    onnxruntime = pytest.importorskip("onnxruntime")
    agent, step = _exported(core)
    session = onnxruntime.InferenceSession(step.model, providers=["CPUExecutionProvider"])
    stream, state = agent.stream(1), [leaf.first for leaf in step.leaves]
    generator = torch.Generator().manual_seed(0)
    for t in range(STEPS):
        inputs = ActorInputs(
            torch.rand(1, 4, generator=generator),
            torch.randint(4, (1,), generator=generator),
            torch.rand(1, generator=generator),
        )
        first = torch.tensor([t in (0, 23)])  # a new episode begins with a memory full of the old one
        with torch.no_grad():
            output = stream.step(inputs, first)
        feeds = {
            "observation": inputs.observation,
            "previous_action": inputs.action,
            "reward": inputs.reward,
            "is_first": first,
        }
        known = {name: part.numpy() for name, part in feeds.items()} | {"hidden": np.zeros((1, step.window + 1), bool)}
        known |= {leaf.input: part for leaf, part in zip(step.leaves, state, strict=True)}
        wanted = {one.name for one in session.get_inputs()}
        found = dict(zip(step.outputs, session.run(None, {k: v for k, v in known.items() if k in wanted}), strict=True))
        np.testing.assert_allclose(found["policy"], output.policy, atol=1e-4)
        np.testing.assert_allclose(found["value"], output.value, atol=1e-4)
        state = [found[leaf.output] for leaf in step.leaves]


def test_a_relevance_of_every_head_is_shown_as_their_mean():
    memory = lite_core("hcam", steps=20, window=4, chunk=4, top_k=2)
    memory = replace(memory, num_layers=1, reading=replace(memory.reading, relevance_heads=True))
    agent = replace(short_t_maze("hcam"), core=memory, world=MAZE).build_agent().eval()
    step = live_step(agent)
    state, heard = step.initial(1), []
    for t in range(10):
        inputs = (torch.rand(1, 4), torch.zeros(1, dtype=torch.long), torch.zeros(1), torch.zeros(1, 5).bool())
        with torch.no_grad(), listen(agent.core, lambda name, x: heard.append(x) if "relevance" in name else None):
            found = dict(zip(step.outputs, step(*inputs, torch.tensor([t == 0]), *state), strict=True))
        state = [found[name] for name in found if name.startswith("next.")]
    assert heard[-1].shape[1] == memory.num_heads > 1 and not torch.allclose(heard[-1][0, 0], heard[-1][0, 1])
    torch.testing.assert_close(found["relevance"], heard[-1][0].mean((0, 1)))


def test_what_cannot_be_live():
    for package in ONNX_PACKAGES:
        pytest.importorskip(package)
    with pytest.raises(ValueError, match="only worlds with a JavaScript port can be played in a page: t-maze"):
        require_live(_agent("gru"), CatchConfig())
    require_live(_agent("ttm"), MAZE)  # a memory without single moments is edited as a whole


@pytest.mark.parametrize("seed", [-3_000_000, 2**64])
def test_a_page_begins_with_any_seed(seed):
    bare = ExportedStep(model=b"", leaves=(), window=0, outputs=())
    text = page_text(_agent("gru"), MAZE, bare, Runtime(b"", b""), seed=seed)
    assert f'"seed":{(FRESH_SEED + seed) % 2**32},'.replace(" ", "") in text.replace(" ", "")


def test_a_runtime_that_is_not_there(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="npm pack onnxruntime-web"):
        find_runtime(tmp_path)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("RECOLLECT_ONNXRUNTIME_WEB", raising=False)
    with pytest.raises(ValueError, match="npm is not installed"):
        find_runtime()
    (tmp_path / SCRIPT).write_bytes(b"script")
    (tmp_path / BINARY).write_bytes(b"binary")
    assert find_runtime(tmp_path) == (b"script", b"binary")


@pytest.fixture(scope="module")
def browser():
    if CHROMIUM is None:
        pytest.skip("no Chromium")
    one = Browser()
    yield one
    one.close()


@pytest.fixture(scope="module")
def runtime():
    try:
        return find_runtime(fetch=False)
    except ValueError as error:
        pytest.skip(str(error))


def _page(core, runtime, folder):
    agent, step = _exported(core)
    path = folder / "live.html"
    path.write_text(page_text(agent, MAZE, step, runtime))
    return agent, path


def _require_same(shown, record, t):
    assert shown["t"] == t and shown["observation"] == record.observations["observation"][t].tolist()
    np.testing.assert_allclose(shown["logits"], record.logits[t], atol=1e-4)
    assert shown["value"] == pytest.approx(record.value[t], abs=1e-4)
    assert shown["reward"] == record.reward[t]


def _told(browser, record, t, start=0):
    """The page after the actions of a record, up to step t; equal to it on the way."""
    for step in range(start, t):
        _require_same(browser.run("window.memx.state()"), record, step)
        browser.run(f"window.memx.step({record.action[step]})")
    return browser.run("window.memx.state()")


@pytest.mark.long
@pytest.mark.parametrize("core", ["hcam", "transformer-xl", "gru"])
def test_the_page_plays_as_python_does(core, browser, runtime, tmp_path):
    agent, path = _page(core, runtime, tmp_path)
    browser.window(1440, 960)
    browser.open(path)
    sides = set()
    for number in range(3):
        record = record_episode(agent, MAZE, seed=FRESH_SEED + number).with_removal()
        browser.run(f"window.memx.begin({str(bool(record.observations['observation'][0, 2])).lower()})")
        sides.add(browser.run("window.memx.state().up"))
        for t in range(record.num_steps - 1):
            shown = browser.run("window.memx.state()")
            _require_same(shown, record, t)
            for card in shown["cards"]:
                if core == "hcam":
                    chunk = record.chunks.index((card["start"], card["stop"]))
                    assert card["kl"] == pytest.approx(record.removal.kl[t, chunk], abs=1e-4)
            browser.run("window.memx.step()")
        assert browser.run("window.memx.state().over")
    assert browser.errors == []
    assert all(url.startswith(("file:", "blob:")) for url in browser.requests)


@pytest.mark.long
@pytest.mark.parametrize("core", ["hcam", "transformer-xl", "gru"])
def test_an_edit_acts_as_in_python(core, browser, runtime, tmp_path):
    agent, path = _page(core, runtime, tmp_path)
    record = record_episode(agent, MAZE, seed=FRESH_SEED, longest=14)
    at = 9
    browser.window(1440, 960)
    browser.open(path)
    card = _told(browser, record, at)["cards"][0]
    span = (card["start"], card["stop"])
    if core == "gru":
        other = record.rerun_from(at, lambda state: agent.initial_state(1))
    else:
        other = record.rerun_from(at, hide=[span])
    if core == "hcam":
        assert span == record.chunks[0]
        other = record.without_memory(0, at)
    # As a person does it: the first button of the first card.
    browser.run("document.querySelector('#cards .memory button').click()")
    browser.settle()
    shown = _told(browser, other, other.num_steps - 1, at)
    assert shown["over"] or shown["t"] == other.num_steps - 1
    assert np.abs(other.logits[at] - record.logits[at]).max() > 1e-3
    assert browser.errors == []


@pytest.mark.long
def test_a_chunk_of_the_twin(browser, runtime, tmp_path):
    agent, path = _page("hcam", runtime, tmp_path)
    record, at = record_episode(agent, MAZE, seed=FRESH_SEED, longest=14), 9
    inputs = record.inputs
    flipped = inputs.observation[..., [0, 1, 3, 2]]
    twin = replace(record, inputs=inputs._replace(observation=flipped)).playback().state_before(at)
    browser.open(path)
    _told(browser, record, at)

    def exchange(state):
        place = agent.core.config.num_chunks - 2  # the first of two chunks
        assert int(state.lengths[0, place]) == 4 and int(state.lengths[0].sum()) == 8
        state, theirs = map_state(torch.clone, state), leaves(twin.layers)
        for ours, other in zip(leaves(state.layers), theirs, strict=True):
            if ours.shape[1] == agent.core.config.num_chunks:
                ours[:, place] = other[:, place]
        return state

    other = record.rerun_from(at, exchange)
    before = browser.run("window.memx.state()")
    shown = browser.run("window.memx.edit('swap', 0)")
    _require_same(shown, other, at)
    assert np.abs(np.subtract(shown["logits"], before["logits"])).max() > 1e-3
    _told(browser, other, other.num_steps - 1, at)
    browser.run(f"(async () => {{ for (let i = {at}; i < {other.num_steps}; i++) await window.memx.back(); }})()")
    assert browser.run("window.memx.state().logits") == before["logits"]


@pytest.mark.long
def test_the_page_is_there_before_the_agent(browser, runtime, tmp_path):
    agent, path = _page("hcam", runtime, tmp_path)
    record = record_episode(agent, MAZE, seed=FRESH_SEED, longest=6)
    browser.window(1440, 960)
    browser.open(path, wait=False)
    up = str(bool(record.observations["observation"][0, 2])).lower()
    # As a person does it, who does not wait: the first steps are taken before the runtime is unpacked.
    walked = browser.run(f"""(async () => {{
        while (!window.memx) await new Promise((done) => setTimeout(done, 1));
        memx.begin({up});
        for (const action of {record.action[:3].tolist()}) memx.step(action);
        await new Promise((done) => setTimeout(done, 1));
        return [memx.ready, memx.state().t, memx.opened];
    }})()""")
    assert walked[:2] == [False, 3]
    browser.run("(async () => { while (!memx.ready) await new Promise((done) => setTimeout(done, 20)); })()")
    _require_same(browser.run("window.memx.state()"), record, 3)  # the agent has lived what was walked
    assert browser.run("document.getElementById('loading').hidden") and browser.errors == []
