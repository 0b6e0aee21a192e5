"""Names, paths and codecs of LeRobot's format, shared by reader and writer."""

import io
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from recollect.tasks.videos.video_files import VideoReader

VERSION = "v3.0"
INFO, STATS, TASKS = "meta/info.json", "meta/stats.json", "meta/tasks.parquet"
EPISODES = "meta/episodes/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
DATA = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
VIDEOS = "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"
OURS = "meta/recollect.json"  # our own file, ignored by other readers, for data that the format has no place for
FILES_PER_CHUNK, DATA_MB, VIDEO_MB = 1000, 100, 200
FPS = 30  # default frames per second

ACTION, REWARD, DONE, TRUNCATED, SCORE = "action", "next.reward", "next.done", "next.truncated", "next.score"
INDICES: dict[str, str] = {
    "timestamp": "float32",
    "frame_index": "int64",
    "episode_index": "int64",
    "index": "int64",
    "task_index": "int64",
}  # columns of every dataset, and their types


class FileNumber(NamedTuple):
    """Numbers of a folder (chunk) and of a file in it."""

    chunk: int
    file: int

    def next(self) -> "FileNumber":
        """Return the number of the next file."""
        chunk, file = divmod(self.chunk * FILES_PER_CHUNK + self.file + 1, FILES_PER_CHUNK)
        return FileNumber(chunk, file)

    def path(self, template: str, key: str = "") -> str:
        """Return the path below the dataset's folder."""
        return template.format(video_key=key, chunk_index=self.chunk, file_index=self.file)


def load_packages() -> tuple[ModuleType, ModuleType, ModuleType]:
    """Import pyarrow, its parquet module, and PyAV.

    Raises:
        ValueError: one of them is missing.
    """
    try:
        import av
        import pyarrow
        import pyarrow.compute
        import pyarrow.parquet
    except ImportError as error:
        raise ValueError(f"datasets of LeRobot need the package {error.name}: run pip install pyarrow av") from error
    return pyarrow, pyarrow.parquet, av


class LosslessVideoWriter:
    """Writer of lossless videos: H.264 in RGB."""

    def __init__(self, path: Path, fps: int) -> None:
        _, _, av = load_packages()
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path, self.fps = path, fps
        self.container = av.open(str(path), "w")
        self.stream: Any = None
        self.frames = self.bytes = 0
        self._new_frame = av.VideoFrame.from_ndarray

    def add(self, image: np.ndarray) -> None:
        """Append a frame, uint8 ``[y, x, 3]``."""
        if self.stream is None:
            self.stream = self.container.add_stream("libx264rgb", rate=self.fps)
            self.stream.height, self.stream.width = image.shape[:2]
            self.stream.pix_fmt = "rgb24"
            self.stream.time_base = Fraction(1, self.fps)
            # Every second frame is a key frame, as in LeRobot: readers seek to any frame.
            self.stream.options = {"crf": "0", "preset": "ultrafast", "g": "2", "bf": "0"}
        frame = self._new_frame(np.ascontiguousarray(image), format="rgb24")
        frame.pts = self.frames
        frame.time_base = Fraction(1, self.fps)
        self._write(self.stream.encode(frame))
        self.frames += 1

    def close(self) -> None:
        """Flush the encoder and close the file."""
        if self.stream is not None:
            self._write(self.stream.encode(None))
        self.container.close()

    def _write(self, packets: list[Any]) -> None:
        for packet in packets:
            self.bytes += packet.size
            self.container.mux(packet)


def video_frames(path: Path) -> Iterator[tuple[float, np.ndarray]]:
    """Yield all frames of a video in order: seconds since its start, and pixels, uint8 ``[y, x, 3]``.

    Raises:
        ValueError: it cannot be read, or a frame is damaged; names the frame.
    """
    try:
        video = VideoReader(path)
    except ValueError as error:
        raise ValueError(f"{path}: frame 0 cannot be read ({error}): the video is damaged or cut off") from None
    with video:
        for frame in video:
            if frame.pixels is None:
                raise ValueError(f"{path}: frame {frame.number} cannot be read: the video is damaged or cut off")
            yield frame.seconds, frame.pixels


def encode_png(image: np.ndarray) -> bytes:
    """Encode a picture uint8 ``[y, x, 3]`` as PNG."""
    _, _, av = load_packages()
    codec = av.CodecContext.create("png", "w")
    codec.height, codec.width = image.shape[:2]
    codec.pix_fmt, codec.time_base = "rgb24", Fraction(1, 1)
    frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(image), format="rgb24")
    return b"".join(bytes(packet) for packet in (*codec.encode(frame), *codec.encode(None)))


def decode_picture(data: bytes) -> np.ndarray:
    """Decode a picture in any format that PyAV reads to uint8 ``[y, x, 3]``.

    Raises:
        ValueError: it cannot be decoded.
    """
    _, _, av = load_packages()
    try:
        with av.open(io.BytesIO(data)) as container:
            return next(container.decode(video=0)).to_ndarray(format="rgb24")
    except (av.error.FFmpegError, StopIteration, IndexError, OSError) as error:
        raise ValueError(f"no picture ({error})") from None
