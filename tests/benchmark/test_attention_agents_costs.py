"""The benchmark of the attention agents: what it counts adds up, and its table has ratios to ``adaptive``."""

import json
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(autouse=True)
def scripts(monkeypatch):
    pytest.importorskip("ale_py")
    monkeypatch.syspath_prepend(str(BENCHMARKS))


@pytest.mark.long
def test_a_small_agent_is_counted_and_timed(monkeypatch):
    import attention_agents

    monkeypatch.setattr(attention_agents, "ROWS", 1)
    first = attention_agents.first_steps(["adaptive"], [21])["adaptive", 21]
    cost = attention_agents.Cost("adaptive", 21, first)
    cost.round()
    row = cost.result()
    agent = cost.trainer.agent
    assert row["parameters"] == sum(parameter.numel() for parameter in agent.parameters())
    assert row["stream_bytes"] >= row["state_bytes"] > 100 * 256 * 4
    # A trained step is acted once, read once, and its gradient costs two readings, of inputs and of weights.
    assert 3.5 < row["training_flops"] / row["acting_flops"] < 4.5
    assert row["acting_flops"] > agent.core.flops_per_step()
    # Weights, their gradients and averages at least.
    assert row["training_bytes"] is None or 12 * row["parameters"] < row["training_bytes"] < 2**30
    assert row["training_steps_per_s"] > 0 and row["acting_ms_32"] > row["acting_ms_1"] > 0
    assert {rows: stream.state.count.tolist() for rows, stream in cost.streams.items()} == {1: [100], 32: [100] * 32}


def test_the_table_divides_by_adaptive(tmp_path):
    from recollect.recipes.attention_agents import ATTENTION_AGENTS
    from report_speed import COST_HEADING, COSTS, cost_rows

    def row(agent, speed):
        numbers = dict.fromkeys(
            ("parameters", "state_bytes", "stream_bytes", "acting_flops", "training_flops", "training_bytes"), 10**6
        )
        times = {"training_steps_per_s": speed, "acting_ms_1": 1000 / speed, "acting_ms_32": 1.0}
        return {"agent": agent, "side": 42, **numbers, **times}

    found = {"environment": {"cpu": "x"}, "rows": [row("adaptive", 100.0), row("timesformer-joint", 20.0)]}
    (tmp_path / "attention-agents-42.json").write_text(json.dumps(found))
    rows, where = cost_rows(tmp_path)
    assert where == {"cpu": "x"} and all(len(line) == len(COST_HEADING) for line in rows)
    assert rows[0][2:4] == ("1.00", "1.00")
    assert rows[1][2:4] == ("5.00", f"{27.70 / 6.62:.2f}") and rows[1][5:7] == ("5.00", f"{52 / 12:.2f}")
    assert COSTS.keys() == ATTENTION_AGENTS.keys()
