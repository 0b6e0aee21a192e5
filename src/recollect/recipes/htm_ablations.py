"""Ablations of the Hierarchical Transformer Memory (Lampinen et al. 2021, appendix D): one change at a time.

    D.2  chunks of 12, 16 and 64 steps (main: 32)                     ballet
    D.3  k = 1, 2 and 4 (main: 8)                                     ballet, object permanence
    D.4  no reconstruction                                            ballet, words
    D.6  gates for hcam, none for transformer-xl                      words
    D.7  transformer-xl twice as wide, twice as deep                  words
    D.8  transformer-xl that attends to the 16 or 32 best steps       ballet, words

``lite`` makes all of them on the T-maze ladder of ``htm_ladder.py``, by reinforcement and reconstruction alone, with
chunks of 4, 8 and 16 steps, k = 1, 2, 4 and all, and a k of 8 for transformer-xl, whose window is the whole episode.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from recollect.cores.config import CoreConfig
from recollect.cores.hcam import HierarchicalChunkMemoryConfig
from recollect.cores.transformer_xl.config import TransformerXLConfig
from recollect.recipes import hierarchical_transformer_memory as htm
from recollect.recipes.base import Recipe, Run, Scale, Test, file_name, require_scale
from recollect.recipes.htm_ladder import LADDERS, RATES, ladder, ladder_tests, levels_table
from recollect.training import ImpalaConfig


def ablations(core: str = "hcam", scale: Scale = "lite") -> ImpalaConfig:
    """Return the unchanged run of a core: on the T-maze ladder; at the paper's scale in the ballet."""
    require_scale(scale, "lite", "paper")
    return htm.ballet(core, scale) if scale == "paper" else ladder(core)


def _chunks(base: ImpalaConfig, *lengths: int) -> dict[str, ImpalaConfig]:
    hcam = base.core
    assert isinstance(hcam, HierarchicalChunkMemoryConfig)
    steps = hcam.chunk_len * hcam.num_chunks
    return {
        f"hcam, chunks of {length}": _with(
            base,
            replace(
                hcam,
                chunk_len=length,
                num_chunks=-(-steps // length),
                memory_len=max(hcam.memory_len, length),
            ),
        )
        for length in lengths
    }


def _top_k(base: ImpalaConfig, *ks: int) -> dict[str, ImpalaConfig]:
    hcam = base.core
    assert isinstance(hcam, HierarchicalChunkMemoryConfig)
    return {f"hcam, k = {k}": _with(base, replace(hcam, top_k=k)) for k in ks}


def _gated(base: ImpalaConfig) -> dict[str, ImpalaConfig]:
    hcam = base.core
    assert isinstance(hcam, HierarchicalChunkMemoryConfig)
    return {"hcam, gated": _with(base, replace(hcam, reading=replace(hcam.reading, gate="gru")))}


def _other_reconstruction(base: ImpalaConfig) -> dict[str, ImpalaConfig]:
    reconstruct = not base.agent.reconstruct
    name = f"hcam, {'with' if reconstruct else 'without'} reconstruction"
    return {name: replace(base, agent=replace(base.agent, reconstruct=reconstruct))}


def _transformers(base: ImpalaConfig, xl: CoreConfig, *ks: int, sizes: bool) -> dict[str, ImpalaConfig]:
    assert isinstance(xl, TransformerXLConfig)
    changes = {"transformer-xl": xl} | {f"transformer-xl, top-k {k}": replace(xl, top_k=k) for k in ks}
    if sizes:
        changes |= {
            "transformer-xl, ungated": replace(xl, gate="residual", relu_outputs=False),
            "transformer-xl, wide": replace(xl, dim=2 * xl.dim),
            "transformer-xl, deep": replace(xl, num_layers=2 * xl.num_layers),
        }
    return {name: _with(base, core) for name, core in changes.items()}


def _with(base: ImpalaConfig, core: CoreConfig) -> ImpalaConfig:
    return replace(base, core=core)


def _lite_rows() -> list[Run]:
    base, xl = ladder("hcam"), ladder(f"transformer-xl{htm.FULL_WINDOW}").core
    runs = {"hcam": base} | _chunks(base, 4, 16) | _top_k(base, 1, 2, 4) | _gated(base) | _other_reconstruction(base)
    return _runs("", "lite", runs | _transformers(base, xl, 8, sizes=True), lambda core, scale: ladder_tests("t-maze"))


def _paper_rows() -> list[Run]:
    ballet, words, permanence = (make("hcam", "paper") for make in (htm.ballet, htm.words, htm.permanence))
    xl = {make: make("transformer-xl", "paper").core for make in (htm.ballet, htm.words)}
    in_ballet = {"hcam": ballet} | _chunks(ballet, 12, 16, 64) | _top_k(ballet, 1, 2, 4)
    in_ballet |= _other_reconstruction(ballet) | _transformers(ballet, xl[htm.ballet], 16, sizes=False)
    in_ballet |= {"memoryless": htm.ballet("memoryless", "paper")}
    in_words = {"hcam": words} | _gated(words) | _other_reconstruction(words)
    in_words |= _transformers(words, xl[htm.words], 16, 32, sizes=True)
    return [
        *_runs("ballet", "paper", in_ballet, htm.ballet_tests),
        *_runs("words", "paper", in_words, htm.word_tests),
        *_runs("permanence", "paper", {"hcam": permanence} | _top_k(permanence, 1, 2, 4), htm.permanence_tests),
    ]


def _runs(
    world: str, scale: Scale, runs: dict[str, ImpalaConfig], tests: Callable[[str, Scale], dict[str, Test]]
) -> list[Run]:
    made = []
    for name, config in runs.items():
        core = name.split(",")[0]
        scored = {
            test: replace(where, paper="-", beyond_window=where.beyond_window and core != "transformer-xl")
            for test, where in tests(core, scale).items()
        }
        label = "-".join(part for part in (world, file_name(name), scale) if part)
        row = f"{world}: {name}" if world else name
        made.append(Run(label=label, row=row, core=core, config=config, tests=scored))
    return made


def _table(results: Sequence[Mapping[str, Any]], root: Path) -> str | None:
    """Return the table of the ladder for the scale lite; None, the usual one, for the paper's."""
    if results[0]["scale"] != "lite":
        return None
    rate, rows = f"{RATES[0]:g}", {run.row: [] for run in _lite_rows()}
    for result in results:
        rows.setdefault(result["row"], []).append(result)
    return levels_table({row: {rate: runs} for row, runs in rows.items() if runs}, LADDERS["t-maze"])


ABLATIONS = Recipe(
    name="htm-ablations",
    title="Ablations",
    source="Hierarchical Transformer Memory (Lampinen et al. 2021), appendix D",
    about="One change at a time, in the worlds where appendix D makes it. Lite: on the T-maze ladder (htm-ladder), "
    "one seed, ten minutes of one processor core a run; all of transformer-xl have a window as long as the longest "
    "episode.",
    config=ablations,
    runs={"lite": _lite_rows, "paper": _paper_rows},
    seeds={"lite": 1, "paper": 3},
    pages=_table,
)
