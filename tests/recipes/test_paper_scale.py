"""The paper scale of Lampinen et al. 2021 as table 1, table 3 and appendix D have it."""

import pytest

from recollect.agents.image_encoders import ImpalaResNet
from recollect.recipes import RECIPES
from recollect.recipes.attention_agents import attention_agent
from recollect.recipes.attention_agents.study import long
from recollect.recipes.hierarchical_transformer_memory import permanence, streets, visual_match
from recollect.recipes.htm_inference import inference
from recollect.tasks import CatchConfig

AGENTS = ["htm-ballet", "htm-words", "htm-permanence", "htm-visual-match", "htm-inference"]


def paper_rows(name):
    return {run.row: run for run in RECIPES[name].rows("paper")}


@pytest.mark.parametrize("name", AGENTS)
def test_every_core_has_four_layers_and_relu(name):
    for run in paper_rows(name).values():
        core = run.config.core
        assert (core.dim, core.num_layers) == (512, 4), run.row
        if run.core in ("transformer-xl", "memoryless"):
            assert core.activation == "relu"


def test_visual_match_is_seen_by_convolutions_and_restored_as_pixels():
    agent = visual_match("lstm", "paper").build_agent()
    assert isinstance(agent.encoder.encoders["observation"], ImpalaResNet)
    assert type(agent.decoders.decoders["observation"]).__name__ == "ImageDecoder"


@pytest.mark.parametrize(
    ("name", "row", "test", "paper"),
    [
        ("htm-permanence", "hcam", "no delay", "0.967"),
        ("htm-permanence", "transformer-xl", "no delay", "0.822"),
        ("htm-permanence", "lstm", "no delay", "0.332"),
        ("htm-permanence", "hcam", "longest delay", "0.917"),
        ("htm-visual-match", "hcam", "", "0.970"),
        ("htm-inference", "hcam", "AC", "0.975"),
        ("htm-ballet", "hcam", "8 dances, delay 48", "0.972"),
        ("htm-words", "transformer-xl", "20 distractors", "0.321"),
        ("htm-streets", "hcam", "a city held out", "26.8"),
    ],
)
def test_published_numbers_are_those_of_table_3(name, row, test, paper):
    assert paper_rows(name)[row].tests[test].paper == paper


def test_the_longest_delay_is_also_trained_alone():
    rows = paper_rows("htm-permanence")
    alone = rows["hcam, trained on the longest delay alone"]
    assert alone.paper == "0.829" and alone.config.world.delays == (max(permanence("hcam", "paper").world.delays),)
    assert rows["transformer-xl, trained on the longest delay alone"].paper == "0.311"


def test_films_and_games_are_learned_on_an_accelerator_where_there_is_one():
    assert {run.config.device for run in paper_rows("ttm-video").values()} == {"auto"}
    assert long(attention_agent("adaptive", CatchConfig(side=42)), 10).device == "auto"


def test_street_actions_are_drawn():
    assert not streets("hcam", "paper").evaluation.greedy


def test_ablations_are_those_of_appendix_d():
    rows = paper_rows("htm-ablations")
    cores = {row: run.config.core for row, run in rows.items()}
    assert [cores[f"ballet: hcam, chunks of {n}"].chunk_len for n in (12, 16, 64)] == [12, 16, 64]
    assert [cores[f"{world}: hcam, k = {k}"].top_k for world in ("ballet", "permanence") for k in (1, 2, 4)] == [
        1,
        2,
        4,
    ] * 2
    assert (
        cores["words: hcam, gated"].reading.gate == "gru" and cores["words: transformer-xl, ungated"].gate == "residual"
    )
    assert [cores[f"words: transformer-xl, top-k {k}"].top_k for k in (16, 32)] == [16, 32]
    assert cores["words: transformer-xl, wide"].dim == 1024 and cores["words: transformer-xl, deep"].num_layers == 8
    for world in ("ballet", "words"):
        assert not rows[f"{world}: hcam, without reconstruction"].config.agent.reconstruct


@pytest.mark.parametrize("chain", [3, 4])
def test_inference_is_appendix_b_4(chain):
    config = inference("hcam", "paper", chain)
    task, core, agent = config.task, config.core, config.agent
    assert (task.num_chains, task.width, task.form, task.num_trials) == (16, 1000, "paper", {3: 48, 4: 96}[chain])
    assert (core.chunk_len, core.top_k, core.num_heads, core.hidden_dim) == (2, 32, 8, 2048)
    assert (agent.given_memory, agent.readout, config.batch_size) == ("shared", "pointer", 32)
    assert (config.optimizer.algorithm, config.optimizer.learning_rate) == ("adam", 1e-4)
