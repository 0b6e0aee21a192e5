"""Tables of docs/believe.md: trained agents (``results/explorer``), and an untrained one (``maps.json``)."""

from functools import cache, partial

import source_tree  # noqa: F401
from recollect.recipes.attention_agents import ATTENTION_AGENTS
from recollect.recipes.result_tables import markdown_table
from recollect.runs.provenance import short_commit
from report_tables import MEASURED, RESULTS, Row, read

AGENTS = {
    "hcam-t-maze": "hcam, T-maze",
    "hcam-ballet": "hcam, ballet",
    "adaptive-catch": "adaptive, catch",
    "adaptive-pong": "adaptive, Pong",
}
MEASURES = (
    "recall@1",
    "mass on key",
    "lift",
    "recall-success coupling",
    "cue swap followed",
    "removal KL",
    "attended and used, Pearson",
    "attended and used, top-2 overlap",
    "deletion AUC",
    "success with the 1 most attended",
    "recall@1, boundaries moved",
    "decision kept, boundaries moved",
)
SHOWN = ("recall@1", "mass on key", "lift", "removal KL", "deletion AUC", "memory swap followed")
"""Metrics of the agent in the T-maze."""
LEARNED = 0.5
"""Share of balls above which an agent of ``catch`` has learned something: it has 0.2 to 0.3 by standing still."""
WHOLE_PICTURES = ("adaptive", "spatio-temporal-sequential")
"""Agents whose attention is to whole pictures, not to places in them."""
PLACES = ["agent, world", "score", "attention on a thing", "on the ball", "saliency on a thing", "on the ball", "so"]
KINDS = {"attention": "attention", "perturbation actor": "saliency"}


def number(value: float | None, least: float = 0.005) -> str:
    """Two digits; numbers below ``least`` are not rounded to them."""
    if value is None:
        return "–"
    return f"{value:.2f}" if abs(value) >= least or value == 0 else "below 0.01"


strict_number = partial(number, least=0.01)


def _by_name(metrics: list[Row]) -> dict[str, Row]:
    return {metric["name"]: metric for metric in metrics}


@cache
def _explored(name: str) -> Row | None:
    """What was measured of an agent, with its metrics by name."""
    path = RESULTS / "explorer" / f"{name}.json"
    if not path.is_file():
        return None
    data = read(path)
    return data | {"metrics": _by_name(data["report"]["metrics"])}


def faithful_table() -> str:
    """A row per measure with a column per agent, and where it was measured."""
    found = {name: data for name in AGENTS if (data := _explored(name)) is not None}
    rows = [["score of the episodes", *map(_score, found.values())]]
    rows += [[measure, *(_cell(data, measure) for data in found.values())] for measure in MEASURES]
    rows += [["lag-only share of its heads", *map(_lags, found.values())]]
    rows += [["gates that fail", *map(_failed, found.values())]]
    places = "\n".join(f"* {AGENTS[name]}: {_where(data)}" for name, data in found.items())
    return f"{markdown_table(['measured', *(AGENTS[name] for name in found)], rows)}\n\n{places}"


def place_table() -> str:
    """Whether the maps of an attention agent fall on what matters, in ``catch``, ``track`` and Pong."""
    rows = []
    for world in ("catch", "track", "pong"):
        for agent in ATTENTION_AGENTS:
            data = _explored(f"{agent}-{world}")
            if data is not None:
                rows.append([f"`{agent}`, {world}", _score(data), *_pointing(data, agent), _verdict(data)])
            elif world == "catch":
                rows.append([f"`{agent}`, {world}", "–", "–", "–", "–", "–", "no trained run yet"])
    return markdown_table(PLACES, rows)


def _cell(data: Row, name: str) -> str:
    metric = data["metrics"].get(name)
    if metric is None:
        table = data["report"]["coupling"]
        same = table and not (table["missed and succeeded"] or table["missed and failed"])
        return "no episode differs" if name == "recall-success coupling" and same else "–"
    unit = f" {metric['unit']}" if metric["unit"] else ""
    low = "" if metric["low"] is None else f" [{number(metric['low'])}, {number(metric['high'])}]"
    control = "" if metric["chance"] is None else f"; {metric['against']} {number(metric['chance'])}"
    return f"{number(metric['value'])}{unit}{low}{control}"


def _score(data: Row) -> str:
    if data["score"] is None:
        return f"reward {data['reward']:.2f} in the first {max(data['steps'])} steps"
    known = [one for one in data["successes"] if one is not None]
    solved = f", {sum(known)} of {len(known)} solved" if known else ""
    return f"{data['score']:.2f}{solved}"


def _lags(data: Row) -> str:
    by_kind: dict[str, list[str]] = {}
    for head in data["report"]["heads"]:
        share = _by_name(head["metrics"]).get("lag-only share", {}).get("value")
        kind = "chunks" if "(chunks)" in head["name"] else "places" if "(places)" in head["name"] else "window"
        by_kind.setdefault(kind, []).append(number(share))
    return "; ".join(f"{kind}: {', '.join(values)}" for kind, values in by_kind.items()) or "–"


def _failed(data: Row) -> str:
    return ", ".join(gate["name"] for gate in data["report"]["gates"] if gate["passed"] is False) or "none"


def _pointing(data: Row, agent: str) -> list[str]:
    cells = []
    for kind in KINDS:
        pointing, ball, right = _pointing_metrics(data, kind)
        if pointing is None:
            reason = "attends to whole pictures" if kind == "attention" and agent in WHOLE_PICTURES else "–"
            cells += [reason, reason]
            continue
        cells += [_with_chance(pointing)]
        on_it = "–" if ball is None else f"{number(ball['value'])} (another step's map {number(ball['chance'])})"
        cells += [on_it + ("" if right is None else f"; of those on a ball {_with_chance(right)}")]
    return cells


def _pointing_metrics(data: Row, kind: str) -> tuple[Row | None, ...]:
    """Return the shares of maps on anything, on the ball, and of those on one of the balls on the marked one."""
    names = (f"pointing, {kind}", f"pointing at {_moving(data)}, {kind}", f"right ball, {kind}")
    return tuple(data["metrics"].get(name) for name in names)


def _moving(data: Row) -> str:
    """The thing that an agent cannot find without looking: not what it moves itself."""
    names = [name for name in data["metrics"] if name.startswith("pointing at ")]
    things = [name.removeprefix("pointing at ").split(",")[0] for name in names]
    return "ball" if "ball" in things or not things else next(thing for thing in things if thing != "paddle")


def _verdict(data: Row) -> str:
    """Whether a map's interval lies above its control, for an agent that has learned."""
    if data["score"] is not None and data["score"] < LEARNED:
        return "has not learned: nothing to believe"
    verdicts = []
    for kind, name in KINDS.items():
        pointing, ball, _ = _pointing_metrics(data, kind)
        held = pointing if ball is None or pointing is None else ball
        if held is not None:
            low = held["value"] if held["low"] is None else held["low"]
            verdicts.append(f"{name}: {'yes' if low > held['chance'] else 'no'}")
    return ", ".join(verdicts)


def _machine(data: Row) -> str:
    hardware, commit = data["hardware"], short_commit(data["commit"])
    where = f"{hardware['processor']}, {hardware['threads']} thread, torch {data['versions']['torch']}, commit {commit}"
    return f"{where}, {data['time'][:10]}"


def _where(data: Row) -> str:
    run = f"{data['episodes']} fresh episodes of the run `{data['run']}` at step {data['checkpoint_step']:,}"
    return f"{run}, {_machine(data)}: `{data['command']}`"


def _with_chance(metric: Row | None) -> str:
    return "–" if metric is None else f"{number(metric['value'])} (chance {number(metric['chance'])})"


def _control(metric: Row) -> str:
    return "–" if metric["chance"] is None else f"{metric['against']} {strict_number(metric['chance'])}"


def trusted_table() -> str:
    """The agent of the T-maze, and where it was measured."""
    data = read(MEASURED / "maps.json")
    trained, untrained, where = data["agents"]["t-maze"], data["agents"]["catch"], data["environment"]
    rows = []
    for metric in map(_by_name(trained["report"]["metrics"]).__getitem__, SHOWN):
        name = f"{metric['name']} ({metric['unit']})" if metric["unit"] else metric["name"]
        interval = "–" if metric["low"] is None else f"{metric['low']:.2f} to {metric['high']:.2f}"
        rows.append([name, strict_number(metric["value"]), interval, _control(metric)])
    heads = ["trained agent, all chunk heads, at the junction", "measured", "95 % interval", "control"]
    return (
        f"{markdown_table(heads, rows)}\n\n{trained['report']['episodes']} episodes, {trained['successes']} of them "
        f"successful, and {untrained['report']['episodes']} of the agent that has learned nothing. "
        f"{_machine(where)}: `python benchmarks/{where['command']}`."
    )


def head_table() -> str:
    """Every head of the agent of the T-maze."""

    def share(metric: Row | None) -> str:
        return "–" if metric is None else f"{strict_number(metric['value'])} ({strict_number(metric['chance'])})"

    rows = []
    for head in read(MEASURED / "maps.json")["agents"]["t-maze"]["report"]["heads"]:
        metrics = _by_name(head["metrics"])
        shares = (share(metrics.get(name)) for name in ("recall@1", "mass on key"))
        rows.append([head["name"], head["label"], *shares, strict_number(metrics["lag-only share"]["value"])])
    return markdown_table(["head", "label", "recall@1 (chance)", "on the cue (chance)", "lag-only share"], rows)


def untrained_table() -> str:
    """The agent that has learned nothing."""
    untrained = read(MEASURED / "maps.json")["agents"]["catch"]
    metrics = _by_name(untrained["report"]["metrics"])
    staticness = metrics["staticness"]["value"]
    places = {"ball or the paddle": "pointing", "ball": "pointing at ball", "paddle": "pointing at paddle"}
    pointing = {thing: metrics[f"{name}, attention"] for thing, name in places.items()}
    rows = [
        *([f"largest place on the {thing}", strict_number(m["value"]), _control(m)] for thing, m in pointing.items()),
        ["staticness (1: the same map at every step)", f"{staticness:.3f}", "–"],
        ["largest weight over an even one", strict_number(untrained["largest_over_even"]), "even 1"],
        ["removal KL, the whole memory (nats)", strict_number(metrics["removal KL of all"]["value"]), "–"],
    ]
    return markdown_table(["agent that has learned nothing", "measured", "control"], rows)
