"""What an agent looks at and remembers: records of episodes, maps, removal of memory, scores with their controls.

    record = record_episode(agent, world, seed=3).with_removal()
    print(score(record).verdict)

record.py      one episode as plain arrays, which scores and writers read
episodes.py    recording; the same episode lived again with another memory (``rerun_from``, ``without_memory``, ...)
attention.py   the attention of any core in absolute steps;  saliency.py  where the picture matters
hiding.py      what it means that a moment is not remembered;  removal.py  what the policy is without it
recall.py, use.py, heads.py, pointing.py, gates.py, controls.py    the numbers of score.py, each with its chance level
explore.py     from a run directory to files
"""

from recollect.interpret.controls import score_with_controls
from recollect.interpret.episodes import LiveEpisode, record_episode
from recollect.interpret.explore import explore_run, record_run
from recollect.interpret.record import EpisodeRecord
from recollect.interpret.report import Report
from recollect.interpret.score import score

__all__ = [
    "EpisodeRecord",
    "LiveEpisode",
    "Report",
    "explore_run",
    "record_episode",
    "record_run",
    "score",
    "score_with_controls",
]
