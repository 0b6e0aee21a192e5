"""What an agent looks at and remembers: records of episodes, maps, removal of memory, scores with their controls.

    record = record_episode(agent, world, seed=3).with_removal()
    print(score(record).verdict)

record.py      one episode as plain arrays, which scores and writers read
episodes.py    recording; the same episode lived again with another memory (``rerun_from``, ``without_memory``, ...)
attention.py   the attention of any core in absolute steps;  saliency.py  where the picture matters
occlusion.py   what it means that a moment is not remembered;  removal.py  what the policy is without it
recall.py, memory_usage.py, heads.py, pointing.py, agreement.py, gates.py
               the measures of score.py, each with its chance level
controls.py, swaps.py, robustness.py    numbers that need the agent: other memories, other chunks, fewer of them
html.py        the memory explorer, one HTML file (page/ has its template, style and script);  movie.py, figures.py
               checks.py, header.py, packing.py, quantization.py, atlas.py, colours.py    its parts
live.py        the agent itself in a page, its memory to be edited there;  onnx_step.py, onnxruntime_web.py,
               template.py    its parts
rerun_file.py  the episode for the viewer rerun
ocatari.py     where the things are in Pong, if OCAtari is installed
explore.py     from a run directory to files
"""

from recollect.interpret.controls import score_with_controls
from recollect.interpret.episodes import LiveEpisode, record_episode
from recollect.interpret.explore import explore_run, record_run
from recollect.interpret.figures import figure_gaze, figure_heat, figure_lag, figure_matrix, figure_strip, figure_top
from recollect.interpret.html import load_report, read_html, write_html
from recollect.interpret.live import write_live
from recollect.interpret.movie import write_movie
from recollect.interpret.record import EpisodeRecord
from recollect.interpret.report import Report
from recollect.interpret.rerun_file import write_rerun
from recollect.interpret.score import score

__all__ = [
    "EpisodeRecord",
    "LiveEpisode",
    "Report",
    "explore_run",
    "figure_gaze",
    "figure_heat",
    "figure_lag",
    "figure_matrix",
    "figure_strip",
    "figure_top",
    "load_report",
    "read_html",
    "record_episode",
    "record_run",
    "score",
    "score_with_controls",
    "write_html",
    "write_live",
    "write_movie",
    "write_rerun",
]
