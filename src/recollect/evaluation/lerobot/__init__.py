"""Reader and writer of recorded episodes in LeRobot's dataset format v3.0. Needs the extra ``robots``.

    meta/info.json                                features, frames per second, paths of files
    meta/stats.json                               mean, deviation, least and largest of every feature
    meta/tasks.parquet                            sentences and their numbers
    meta/episodes/chunk-000/file-000.parquet      one row per episode: its length, sentences and files
    data/chunk-000/file-000.parquet               one row per frame: numbers, the sentence's number
    videos/{key}/chunk-000/file-000.mp4           one video for many episodes

Written from the format's public description alone; LeRobot itself is not needed, and requires another Python.
"""

from recollect.evaluation.lerobot.reading import read as read
from recollect.evaluation.lerobot.writing import write as write
