"""Recorded episodes in LeRobot's dataset format v3.0: read anybody's, write ours. Needs the extra ``robots``.

    meta/info.json                                features, frames a second, where files are
    meta/stats.json                               mean, deviation, least and largest of every feature
    meta/tasks.parquet                            sentences and their numbers
    meta/episodes/chunk-000/file-000.parquet      one row an episode: its length, its sentences, where it lies
    data/chunk-000/file-000.parquet               one row a frame: numbers, the sentence's number
    videos/{key}/chunk-000/file-000.mp4           one film for many episodes

Written after the format's public description alone; LeRobot itself is not needed, and asks for another Python.
"""

from recollect.evaluation.lerobot.reading import read as read
from recollect.evaluation.lerobot.writing import write as write
