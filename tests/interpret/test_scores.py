"""Scores tell apart heads whose kinds are known, and give chance where there is nothing."""

import json
from dataclasses import replace

import numpy as np
import pytest
from synthetic import CUE, KINDS, STEPS, synthetic_record

from recollect.interpret import gates
from recollect.interpret.heads import effective_number, lag_only_share, rows_of, span90, staticness
from recollect.interpret.memory_usage import attended_and_used, top_overlap
from recollect.interpret.pointing import hits
from recollect.interpret.recall import Maps, choice, latency, lift, maps_of, mass_on_key, recall_at, roc_auc
from recollect.interpret.record import Objects, Pair
from recollect.interpret.report import add_up
from recollect.interpret.score import score


@pytest.fixture(scope="module")
def record():
    return synthetic_record()


@pytest.fixture(scope="module")
def report(record):
    return score(record)


def _numbers(report, head):
    return {metric.name: metric.value for metric in report.heads[KINDS.index(head)].metrics}


def test_the_four_heads_get_their_labels(report):
    assert [head.label for head in report.heads] == ["recency", "content", "diffuse", "offset 16"]


def test_only_the_content_head_recalls(report):
    for kind in KINDS:
        numbers = _numbers(report, kind)
        assert (numbers["recall@1"] == 1.0) == (kind == "content"), kind
        assert (numbers["choice"] == 1.0) == (kind == "content"), kind
    content, diffuse = _numbers(report, "content"), _numbers(report, "diffuse")
    assert content["lift"] > 8
    assert content["mass on key"] == pytest.approx(0.76, abs=0.02)
    assert content["localisation AUC"] == 1.0
    assert diffuse["lift"] == pytest.approx(1.0, abs=0.05)
    assert diffuse["localisation AUC"] == pytest.approx(0.5, abs=0.1)


def test_lag_only_share_catches_recency_and_constant_offsets(report):
    shares = {kind: _numbers(report, kind)["lag-only share"] for kind in KINDS}
    assert min(shares["recency"], shares["offset"]) > 0.95
    assert max(shares["content"], shares["diffuse"]) < 0.6
    assert _numbers(report, "recency")["span90"] == pytest.approx(10, abs=1)
    assert _numbers(report, "diffuse")["effective number"] > 150


def test_use_agrees_with_the_content_head_alone(report, record):
    assert _numbers(report, "content")["attended and used, Pearson"] > 0.95
    assert _numbers(report, "content")["attended and used, top-2 overlap"] > 0.7
    for kind in ("recency", "diffuse", "offset"):
        assert abs(_numbers(report, kind)["attended and used, Pearson"]) < 0.3, kind
    found = attended_and_used(record, maps_of(record, [1]))
    assert found is not None and abs(found[1]) < 0.1  # permuted chunks


def test_removal_of_the_key_stands_beside_removal_of_other_chunks(report):
    metric = report["removal KL"]
    assert metric.value == pytest.approx(0.45, abs=0.02)  # the dance lies in two chunks
    assert metric.chance < 0.01


def test_chance_levels_are_what_a_random_head_scores():
    generator, recalled, chances = np.random.default_rng(0), [], []
    base = synthetic_record()
    for _ in range(60):
        chunks = np.where(np.isnan(base.chunk_rel[:, :1]), np.nan, generator.random(base.chunk_rel[:, :1].shape))
        record = replace(base, heads=base.heads[:1], temporal=base.temporal[:, :1], chunk_rel=chunks)
        for k in (1, 3):
            ratio = add_up(recall_at(record, maps_of(record, [0]), k))
            recalled.append(ratio.total / ratio.number)
            chances.append(ratio.chance / ratio.number)
    for k in (0, 1):
        assert np.mean(recalled[k::2]) == pytest.approx(np.mean(chances[k::2]), abs=0.04)


@pytest.mark.parametrize("cued", [0, 3])
def test_even_attention_scores_its_chance_level_wherever_the_key_lies(cued):
    record = synthetic_record(cued=cued)
    maps = Maps(*(np.where(np.isnan(part), np.nan, 0.25) for part in maps_of(record, [0])[:2]), heads=[0])
    even = replace(record, removal=replace(record.removal, kl=np.where(np.isnan(maps.chunks), np.nan, 0.0)))
    for found in (recall_at(record, maps), recall_at(record, maps, 3), choice(record, maps), top_overlap(even, maps)):
        ratio = add_up(found)
        assert ratio.number == 22 and ratio.total == pytest.approx(ratio.chance)
    assert list(latency(record, maps)) == []


@pytest.mark.parametrize("windows", [(STEPS,), (128,), (32,), (STEPS, 128, 8)])
def test_chance_of_mass_on_key_is_even_attention_to_the_steps_that_each_head_reads(windows):
    """The key lies 118 to 133 steps before the first decision: in reach, at the edge of a window, or outside of it."""
    record, number = synthetic_record(), len(windows)
    lags = np.arange(STEPS)[:, None] - np.arange(STEPS)
    weights = np.where(np.stack([lags < window for window in windows], 1), record.temporal[:, 1:2], np.nan)
    weights *= np.linspace(0.5, 1, number)[:, None]
    even, literal = np.full_like(weights, np.nan), []
    for t in range(STEPS):
        for h in range(number):
            seen = [s for s in range(STEPS) if not np.isnan(weights[t, h, s])]
            even[t, h, seen] = sum(weights[t, h, s] for s in seen) / len(seen)
    for t in range(CUE, STEPS - 1):
        on_key = [[even[t, h, s] for s in range(*record.pairs[0].key)] for h in range(number)]
        literal.append(sum(value for row in on_key for value in row if not np.isnan(value)) / number)
    heads = list(range(number))
    record = replace(
        record, heads=record.heads[:1] * number, temporal=weights, chunk_rel=record.chunk_rel[:, [1] * number]
    )
    blind = replace(record, temporal=even)
    samples, control = (
        list(mass_on_key(record, maps_of(record, heads))),
        list(mass_on_key(blind, maps_of(blind, heads))),
    )
    assert [chance for _, chance in samples] == pytest.approx(literal, rel=1e-5)
    assert [mass for mass, _ in control] == pytest.approx(literal, rel=1e-5)
    lifts = [value for value, _ in lift(blind, maps_of(blind, heads))]
    assert lifts == pytest.approx([1.0] * sum(chance > 0 for chance in literal), rel=1e-5)
    assert (windows == (32,)) == (not lifts)


def test_maps_that_are_zero_at_the_same_steps_are_not_alike_for_that(record, monkeypatch):
    def attends_to(steps):
        maps = np.where(np.isnan(record.temporal), np.nan, 0.0)
        maps[:, :, steps] = np.where(np.isnan(maps[:, :, steps]), np.nan, 0.5)
        return replace(record, temporal=maps)

    monkeypatch.setattr(gates, "_attention_of", lambda agent, episode: attends_to([20, 80]))
    assert abs(gates._rank_correlation(attends_to([3, 50]), None)) < 0.1
    assert gates._rank_correlation(attends_to([20, 80]), None) == pytest.approx(1.0)


def test_coupling_is_measured_over_episodes():
    good = [replace(_only(synthetic_record(i), 1), info=synthetic_record(i).info) for i in range(3)]
    bad = [_only(synthetic_record(i, success=False), 0) for i in range(3)]
    report = score([*good, *bad])
    assert report["recall-success coupling"].value == 1.0
    assert report.coupling == {
        "recalled and succeeded": 3, "recalled and failed": 0, "missed and succeeded": 0, "missed and failed": 3,
    }  # fmt: skip
    assert "recall-success coupling" not in score(good)  # nothing to compare with
    assert report["recall@1"].low < 0.5 < report["recall@1"].high


def _only(record, head):
    return replace(
        record,
        heads=record.heads[:1],
        temporal=record.temporal[:, head : head + 1],
        chunk_rel=record.chunk_rel[:, head : head + 1],
    )


def test_static_heads_are_told_from_content_by_episodes_with_other_keys():
    records = [_only(synthetic_record(i, cued=1 + i), 1) for i in range(3)]
    assert score(records).heads[0].label == "content"
    fixed = np.where(np.isnan(records[0].temporal), np.nan, 1e-4)
    fixed[:, :, 24:32] = np.where(np.isnan(fixed[:, :, 24:32]), np.nan, 0.1)
    assert score([replace(record, temporal=fixed) for record in records]).heads[0].label == "static"


def test_shuffled_labels_fail_the_gates():
    record = _only(synthetic_record(), 1)
    wrong = replace(record, pairs=(Pair(query=record.pairs[0].query, key=(120, 136)),))
    gates = {gate.name: gate.passed for gate in score(wrong).gates}
    assert gates["recall@1 above chance"] is False and gates["lift above chance"] is False
    assert "do not believe" in score(wrong).findings
    assert all(gate.passed for gate in score(record).gates)


def test_gates_see_the_future_and_wrong_sums(record):
    broken = record.temporal.copy()
    broken[5, 0, 9] = 0.1
    gates = {gate.name: gate.passed for gate in score(replace(record, temporal=broken)).gates}
    assert gates["causality"] is False and gates["rows sum"] is False
    gates = {gate.name: gate.passed for gate in score(replace(record, value=np.full(STEPS, np.nan))).gates}
    assert gates["finite"] is False


def test_the_report_is_json(report):
    text = json.dumps(report.to_json(), allow_nan=False)
    assert json.loads(text)["heads"][1]["label"] == "content"
    assert "%" in report.findings and "nats" in report.findings


def test_records_of_different_agents_are_refused(record):
    with pytest.raises(ValueError, match="different heads"):
        score([record, _only(record, 0)])
    with pytest.raises(ValueError, match="at least one"):
        score([])


def test_a_record_without_attention_has_a_verdict(record):
    bare = replace(record, heads=(), temporal=None, chunk_rel=None, removal=None)
    assert "nothing could be scored" in score(bare).findings


@pytest.mark.parametrize("unit", ["chunk", "all"])
def test_episodes_that_never_came_to_a_decision_do_not_count_beside_those_that_did(record, unit):
    """Of such an episode every step would count, and a decision is one step of many."""
    removal = replace(record.removal, unit=unit, kl=record.removal.kl if unit == "chunk" else record.removal.kl[:, :1])
    came = replace(record, removal=removal)
    never = replace(came, pairs=(), removal=replace(removal, kl=np.where(np.isnan(removal.kl), np.nan, 50.0)))
    name = "attended and used, top-2 overlap" if unit == "chunk" else "removal KL of all"
    assert score([came, never])[name] == score(came)[name]


def test_a_verdict_speaks_of_a_decision_only_where_there_was_one(record):
    whole = replace(record.removal, unit="all", kl=np.full((STEPS, 1), 0.25, np.float32))
    bare = replace(record, heads=(), temporal=None, chunk_rel=None, removal=whole)
    assert "changes by 0.25 nats at the decision, elsewhere by 0.25" in score(bare).findings
    assert score(replace(bare, pairs=())).findings == "without the memory the policy changes by 0.25 nats on average"


def test_without_ground_truth_there_is_still_a_verdict(record):
    verdict = score(replace(record, pairs=())).findings
    assert "2 of 4 heads look back a constant number of steps" in verdict and "Pearson" in verdict


def test_numbers_of_rows_by_hand():
    rows = np.array([[0.5, 0.25, 0.25, 0.0]])
    assert effective_number(rows) == pytest.approx(np.exp(1.5 * np.log(2)))
    assert span90(np.array([3]), rows) == 4.0
    assert roc_auc(np.array([0.1, 0.1, 0.9]), np.array([False, True, True])) == 0.75
    steps = np.arange(10, 20)
    by_place = np.full((10, 20), 0.0)
    by_place[np.arange(10), [3, 7, 1, 9, 2, 0, 5, 8, 4, 6]] = 1.0
    assert lag_only_share(steps, np.where(np.arange(20) <= steps[:, None], by_place, np.nan)) < 0.2


def test_one_short_row_says_nothing(record):
    short = replace(
        _only(record, 1), temporal=record.temporal[:1, :1, :1], pairs=(), chunks=((0, 1),), reward=np.zeros(1)
    )
    assert len(rows_of(short, 0)[0]) == 0


def test_staticness():
    frames = np.random.default_rng(0).integers(0, 255, (10, 4, 4, 3), dtype=np.uint8)
    moving = np.eye(10)[:, :9].reshape(10, 3, 3) + 1e-9
    assert staticness(np.ones((10, 3, 3)), frames) == 1.0
    assert staticness(moving, frames) < 0.1
    assert np.isnan(staticness(moving, np.zeros_like(frames)))


def test_pointing_game_against_boxes():
    objects = Objects(
        names=("ball",),
        boxes=np.array([[[10, 10, 14, 14]]] * 4),
        visible=np.array([[True], [True], [True], [False]]),
        matters=np.ones((4, 1), bool),
    )
    maps = np.zeros((4, 8, 8))
    maps[0, 1, 1] = maps[1, 7, 7] = 1.0  # on the ball, far from it, and nothing
    ratio = add_up(hits(maps, np.arange(4), objects, (64, 64)))
    assert (ratio.total, ratio.number) == (1.0, 2)
    assert ratio.chance / ratio.number == pytest.approx(8 * 8 / 64**2)
