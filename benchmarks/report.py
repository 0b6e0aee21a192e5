"""Put what was measured into README.md and docs/: tables between markers, and figures. No number is typed by hand.

    python benchmarks/report.py

Reads the newest file of each kind in benchmarks/results/, and the recipes' and explorer's in results/.
Needs matplotlib (extra ``dev``).
"""

from collections.abc import Callable
from functools import partial

import source_tree  # noqa: F401
from claims import PAGES
from recollect.files import replace_between, write_atomically
from report_engines import cost_table as engine_costs
from report_engines import learning_table
from report_figures import figure_babyai, figure_listops, figure_reinforced, figure_streams
from report_learned import (
    all_attention_table,
    attention_table,
    beside_table,
    first_screen,
    flops_that_differ,
    picture_table,
    robot_table,
    video_table,
)
from report_maps import faithful_table, head_table, place_table, trusted_table, untrained_table
from report_papers import current_counts, first_claims, ladder_claims, runs, scoreboard, state, verdict_counts
from report_pays import draw_pays
from report_roofline import equal_table, figure_roofline, linear_table, roofline_table
from report_speed import (
    card_text,
    certificate_table,
    chunk_text,
    core_table,
    cost_table,
    export_table,
    full_tables,
    live_table,
    mutation_table,
    pong_table,
    process_table,
    rate_table,
    ratio_table,
    rl_table,
    size_table,
    speed_table,
    task_table,
)
from report_streams import HTTP, NEIGHBOURS, PEERS, SERVING, precision_table, soak_table
from report_tables import LIFELONG, PLAIN_ATTENTION, PROFILE, ROOT, WORLDS
from report_which import which_choice, which_picture, which_table

ATTENTION_PAGES = {
    "mott": ("mott",),
    "adaptive": ("adaptive",),
    "spatio-temporal": ("spatio-temporal-sequential", "spatio-temporal-one-shot"),
    "timesformer": ("timesformer-divided", "timesformer-joint"),
}
"""Pages of docs/attention, and their agents."""
BLOCKS: dict[str, dict[str, Callable[[], str]]] = {
    "README.md": {"papers": first_claims},
    "docs/results/index.md": {"scoreboard": scoreboard, "results": first_screen},
    "docs/results/state.md": {
        "counts": verdict_counts,
        "current": current_counts,
        **{page: partial(state, paper) for paper, page in PAGES.items()},
        "htm-ladders": ladder_claims,
        **{f"{page}-runs": partial(runs, paper) for paper, page in PAGES.items()},
    },
    "docs/cores/index.md": {"cores": core_table},
    "docs/certificate.md": {"card": card_text, "all": certificate_table, "mutations": mutation_table},
    "docs/benchmark.md": {
        "speed": speed_table,
        "full": full_tables,
        "ratios": ratio_table,
        "rl": rl_table,
        "pong": pong_table,
        "profile": PROFILE,
        "worlds": WORLDS,
        "lifelong": LIFELONG,
    },
    "docs/results.md": {"beside-sb3": beside_table},
    "docs/your-own-world.md": {"processes": process_table},
    "docs/agents.md": {"tasks": task_table},
    "docs/believe.md": {
        "trusted": trusted_table,
        "heads": head_table,
        "untrained": untrained_table,
        "faithful": faithful_table,
        "places": place_table,
    },
    "docs/video.md": {"rows": video_table, "flops": flops_that_differ},
    "docs/deploy.md": {"live": live_table, "exported": export_table},
    "docs/engines.md": {
        "learning": learning_table,
        **{engine: partial(engine_costs, engine) for engine in ("torchrl", "sb3", "rllib")},
    },
    "docs/robots.md": {"learned": robot_table, "rates": rate_table},
    "docs/attention-agents.md": {
        "sizes": size_table,
        "costs": cost_table,
        "learned": all_attention_table,
        "plain": PLAIN_ATTENTION,
    },
    **{
        f"docs/attention/{page}.md": {
            "costs": partial(cost_table, agents),
            "learned": partial(attention_table, agents),
        }
        for page, agents in ATTENTION_PAGES.items()
    },
    "docs/long-rows.md": {"chunks": chunk_text},
    "docs/images.md": {"rows": picture_table},
    "docs/speed.md": {"precision": precision_table, "neighbours": NEIGHBOURS, "peers": PEERS},
    "docs/serve.md": {"serving": SERVING, "soak": soak_table, "http": HTTP},
    "docs/roofline.md": {"roofline": roofline_table, "equal-steps": equal_table, "linear": linear_table},
    "docs/which-memory.md": {"which-choice": which_choice, "which-table": which_table},
}
"""Generated text by page and name of its markers."""
FIGURES = {
    "streams.png": figure_streams,
    "listops.png": figure_listops,
    "babyai.png": figure_babyai,
    "reinforced.png": figure_reinforced,
    "which-memory.svg": which_picture,
    "roofline.png": figure_roofline,
}


def main() -> None:
    for page, blocks in BLOCKS.items():
        path = ROOT / page
        text = path.read_text()
        for name, make in blocks.items():
            text = replace_between(text, f"recollect:{name}", make())
        write_atomically(path, text)
    for name, draw in FIGURES.items():
        draw(ROOT / "docs" / "assets" / name)
    draw_pays()


if __name__ == "__main__":
    main()
