"""The settings of the long rows' recipes are the published ones."""

import json
from dataclasses import replace

import pytest

from recollect.recipes import RECIPES, Run, base
from recollect.recipes.long_range import arena, listops
from recollect.recipes.long_range_arena import STUDIES
from recollect.recipes.long_range_arena import arena as task_of_the_arena
from recollect.recipes.reproduce import reproduce
from recollect.tasks import ListOps
from recollect.training import ClassificationConfig, FitConfig
from small_runs import LISTOPS


def rows(name, scale="paper"):
    return {run.row: run for run in RECIPES[name].rows(scale)}


def test_listops_has_zhu_et_als_settings():
    config = listops("two-way-tlb", "paper")
    core = config.encoder.core
    assert (core.dim, core.hidden_dim, core.num_layers, core.num_heads, core.self_per_cross) == (64, 128, 2, 2, 1)
    assert (core.chunk_len, core.num_slots, core.causal) == (100, 20, False), "tables 7 and 8: 38.18 is chunks of 100"
    assert config.task == ListOps() and config.batch_size == 32 and config.fit.steps == 5000
    optimizer = config.optimizer
    assert (optimizer.learning_rate, optimizer.warmup_steps, optimizer.epsilon) == (1e-4, 1000, 1e-6)
    assert config.agent.hidden_dim == 128 and config.agent.embedding_std == 0.02


def test_listops_has_the_rows_of_the_tables():
    found = rows("listops")
    assert found["two-way-tlb, chunks of 100, 20 slots"].tests[""].paper == "0.382"
    assert found["transformer"].tests[""].paper == "0.376"
    assert found["past-chunks (no bottleneck)"].tests[""].paper == "0.321"
    chunks = {run.config.encoder.core.chunk_len for row, run in found.items() if "chunks of" in row}
    assert chunks == {2, 20, 100, 500, 1000}
    assert {run.config.encoder.core.num_slots for row, run in found.items() if row.endswith("slots")} == {
        1,
        10,
        20,
        200,
    }
    feedbacks = {
        run.config.encoder.core.feedback
        for run in found.values()
        if isinstance(run.config, ClassificationConfig) and run.core == "two-way-tlb"
    }
    assert feedbacks == {"top_down", "per_layer", "none"}
    pretrained = found["transformer, pretrained"].config
    assert (pretrained.pretraining.steps, pretrained.fit.steps) == (2500, 7500), (
        "as many steps of answers as the others"
    )


def test_the_paper_scale_of_listops_is_scored_on_more_rows_than_were_published():
    for run in rows("listops").values():
        test, task = run.tests[""], run.config.task
        assert (test.samples, test.where.test_rows, test.where.part) == (20_000, 20_000, "test")
        assert replace(test.where, test_rows=task.test_rows, part="train") == task


def test_more_test_rows_leave_the_other_parts_as_they_are():
    for part in ("train", "validation", "test"):
        few, more = (replace(LISTOPS, part=part, test_rows=number) for number in (20, 50))
        numbers = few.part_rows()
        assert more.part_rows()[: len(numbers)].equal(numbers)
        assert more.make_batch(numbers).inputs.equal(few.make_batch(numbers).inputs)


def test_the_arenas_rate_peaks_where_it_does():
    config = arena("two-way-tlb")
    assert abs(config.optimizer.rate(999, 5000) - 3.95e-4) < 1e-6
    core = config.encoder.core
    assert (core.dim, core.hidden_dim, core.num_heads, core.num_slots, core.self_per_cross) == (512, 1024, 8, 100, 2)
    text = task_of_the_arena("text", scale="paper")
    assert abs(text.optimizer.learning_rate - 2.80e-4) < 1e-6
    baseline = task_of_the_arena("text", "transformer", "paper")
    assert abs(baseline.optimizer.learning_rate - 5.6e-4) < 2e-6
    assert (baseline.encoder.num_layers, baseline.encoder.dim, baseline.encoder.hidden_dim) == (4, 256, 1024)


def test_every_task_of_the_arena_has_its_sizes():
    wanted = {  # width, heads, head width, feed-forward, R, slots, chunk
        "text": (256, 4, 64, 1024, 2, 10, 10),
        "retrieval": (128, 4, 32, 512, 2, 10, 10),
        "image": (128, 8, 8, 128, 1, 5, 32),
        "pathfinder": (128, 8, 8, 128, 2, 5, 64),
    }
    assert wanted.keys() == STUDIES.keys()
    for name, sizes in wanted.items():
        core = task_of_the_arena(name, scale="paper").encoder.core
        width = core.details.head_dim or core.dim // core.num_heads
        found = (core.dim, core.num_heads, width, core.hidden_dim, core.self_per_cross, core.num_slots, core.chunk_len)
        assert found == sizes, name
        assert core.layers.count("cross") == 1, name


@pytest.mark.parametrize("name", [*STUDIES, "listops"])
def test_slots_in_the_arena_are_those_of_its_code(name):
    config = arena("two-way-tlb") if name == "listops" else task_of_the_arena(name, scale="paper")
    details = config.encoder.core.details
    assert (details.initial_slots, details.empty_chunk) == ("sinusoid_every_chunk", "add_slots")
    assert config.agent.length_groups == 1, "chunks of padding count"


@pytest.mark.parametrize("name", [*STUDIES, "listops"])
def test_inputs_are_dropped_once(name):
    """The bottleneck drops its inputs itself, all other encoders leave it to the classifier."""
    for key in ("two-way-tlb", "transformer"):
        config = arena(key) if name == "listops" else task_of_the_arena(name, key, "paper")
        own = config.encoder.core.dropout if key == "two-way-tlb" else 0.0
        assert sorted((own, config.agent.dropout))[0] == 0.0 < max(own, config.agent.dropout)


@pytest.mark.parametrize("name", STUDIES)
def test_the_test_part_does_not_choose_the_checkpoint(name):
    for run in rows(f"arena-{name}", "paper").values():
        task = run.config.task
        assert task.scored_on(final=False) != task.scored_on(final=True) or name == "pathfinder"
        assert getattr(task, "validation", 1) > 0
        if run.core != "memoryless":
            assert run.tests[""].samples == STUDIES[name].test_rows


def test_what_is_no_encoder_of_tokens_is_refused():
    for make, message in (
        (lambda: listops("swin-v2"), "core='swin-v2'.*patches"),
        (lambda: listops("vit-tlb"), "core='vit-tlb'.*patches"),
        (lambda: listops(scale="foo"), "scale='foo'"),
        (lambda: listops(chunk_len=0), "chunk_len=0"),
        (lambda: listops(num_slots=0), "num_slots=0"),
        (lambda: task_of_the_arena("foo"), "foo"),
        (lambda: task_of_the_arena("text", scale="foo"), "scale='foo'"),
    ):
        with pytest.raises(ValueError, match=message):
            make()


def test_the_half_words_are_a_row_of_text():
    run = rows("arena-text")["two-way-tlb, every word in two chunks of 10"]
    assert run.tests[""].paper == "0.813" and run.config.task.split_words == 10 == run.tests[""].where.split_words


@pytest.mark.parametrize(
    ("scale", "row", "has", "others"),
    [
        ("paper", "two-way-tlb, no positions on slots", "learned", "sinusoid_every_chunk"),
        ("lite", "two-way-tlb, positions on slots", "sinusoid_every_chunk", "learned"),
    ],
)
def test_positions_on_slots_are_compared_in_text(scale, row, has, others):
    found = rows("arena-text", scale)
    cores = [found[name].config.encoder.core for name in (row, "two-way-tlb")]
    assert [core.details.initial_slots for core in cores] == [has, others]
    plain = [
        replace(core, details=replace(core.details, initial_slots="learned", empty_chunk="keep")) for core in cores
    ]
    assert plain[0] == plain[1]


def test_a_row_runs_and_its_table_is_made(tmp_path):
    task = LISTOPS
    config = replace(listops(), task=task, fit=FitConfig(steps=2, evaluate_every=1), batch_size=4)
    test = base.Test(where=task.scored_on(final=True), paper="0.382", best=True)
    recipe = replace(
        RECIPES["listops"],
        runs={"lite": lambda: [Run(label="tlb", row="tlb", core="two-way-tlb", config=config, tests={"": test})]},
    )
    page = reproduce(recipe, root=tmp_path, seeds=1).read_text()
    assert "| tlb | 0.382 | 0." in page and "failed" not in page
    result = json.loads((tmp_path / "results/listops/tlb-seed0.json").read_text())
    assert result["status"] == "ok" and len(result["tests"][""]["correct"]) == 20
    assert result["config"]["encoder"]["kind"] == "two-way-tlb" and "state_bytes" not in result
