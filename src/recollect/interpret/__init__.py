"""Records of episodes, maps of attention and saliency, effects of removing memory, and scores with their controls.

    record = record_episode(agent, world, seed=3).with_removal()
    print(score(record).verdict)

record.py      one episode as plain arrays, which scores and writers read;  events.py  its ground truth
episodes.py    recording; the same episode continued with another memory (``rerun_from``, ``without_memory``, ...)
playback.py    the inputs of an episode given to its agent again
attention.py   attention of any core in absolute steps;  spatial_maps.py  to places;  saliency.py  to pixels
occlusion.py   hiding moments from a memory;  removal.py  the policy without them
recall.py, memory_usage.py, heads.py, pointing.py, foreground.py    measures, each with its chance level
score.py       all measures of recorded episodes;  gates.py  sanity checks;  report.py, verdict.py  the result
controls.py    measures that need the agent;  swaps.py  exchanged memories;  robustness.py  other and fewer chunks
html.py        the memory explorer, one HTML file (page/ has its template, style and script); its parts are header.py,
               packing.py, quantization.py, atlas.py, colours.py, template.py
live.py        the agent itself in a page, where its memory can be edited;  onnx_step.py, onnxruntime_web.py
movie.py, figures.py, rerun_file.py    the episode as a movie, as figures, and for the viewer rerun
ocatari.py     positions of things in Pong, if OCAtari is installed
explore.py     from a run directory to files;  watch.py, watch_picture.py  a detector that watches a video
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
