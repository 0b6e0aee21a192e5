"""Video files and cameras, frame by frame, through PyAV, without reading ahead; broken frames are marked and skipped.

A frame is broken where it cannot be decoded, or where the decoder had to guess parts of it.

    for frame in read_video("kitchen.mp4"):
        frame.pixels            uint8 [y, x, 3]; None where the frame is broken
        frame.seconds           since the start

A camera is a number (0 is the first), a device such as /dev/video0, or an address (rtsp://, http://).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from recollect.config import require
from recollect.lazy import np

FORMATS = {".mp4": "mp4", ".mkv": "matroska", ".mov": "mov", ".avi": "avi"}
"""Endings of files that can be written, and their names in FFmpeg."""
MOST_BROKEN = 1000  # consecutive broken frames after which reading ends


class Frame(NamedTuple):
    """One frame of a video."""

    number: int  # from 0; broken ones count
    seconds: float  # since the start, by the file's time stamps, or by its rate
    pixels: np.ndarray | None  # uint8 [y, x, 3], red, green, blue; None where it is broken


class VideoReader:
    """An open video file or camera. Iterate over its frames once; a ``with`` block closes it.

    Args:
        source: path, number of a camera, device, or address.

    Raises:
        ValueError: the source does not exist, holds no video, or PyAV is missing.
    """

    def __init__(self, source: str | Path) -> None:
        self.name = str(source)
        av = load_av()
        self._errors: tuple[type[Exception], ...] = (av.error.FFmpegError, ValueError, EOFError)
        target, options = _target(self.name)
        if options.get("format") is None and "://" not in target:
            path = Path(target)
            require(not path.is_dir(), "film", target, "this is a folder: give one of its films")
            if not path.is_file():
                raise ValueError(f"{target} does not exist: give a film, or the number of a camera (0, 1, ...)")
            require(path.stat().st_size > 0, "film", target, "the file is empty")
        try:
            self._container: Any = av.open(target, **options)
        except (av.error.FFmpegError, OSError) as error:
            raise ValueError(f"{target} cannot be opened ({_reason(error)}): is it a film or a camera?") from error
        if not self._container.streams.video:
            self._container.close()
            raise ValueError(f"{target} holds no video: give a film with pictures")
        self._stream = self._container.streams.video[0]
        self._stream.thread_type = "SLICE"  # frame threads would delay frames until later ones arrive
        rate = self._stream.average_rate or self._stream.guessed_rate
        self.rate = float(rate) if rate else 25.0
        """Frames per second, 25 where the file does not state it."""
        self.is_camera = options.get("format") is not None or "://" in target

    @property
    def seconds(self) -> float | None:
        """Length in seconds; None where the file does not state it."""
        stream = self._stream
        if stream.duration is not None and stream.time_base is not None:
            return float(stream.duration * stream.time_base)
        return None if self._container.duration is None else self._container.duration / 1e6

    def __enter__(self) -> VideoReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file or the device."""
        self._container.close()

    def __iter__(self) -> Iterator[Frame]:
        number, broken, seconds, start = 0, 0, 0.0, None
        packets = iter(self._container.demux(self._stream))
        while broken < MOST_BROKEN:
            try:
                packet = next(packets, None)
                if packet is None:
                    return
                pictures = [(frame.time, _pixels(frame)) for frame in packet.decode()]
            except self._errors as error:
                if isinstance(error, EOFError):
                    return
                broken += 1
                yield Frame(number, seconds, None)
                number, seconds = number + 1, seconds + 1 / self.rate
                continue
            for time, pixels in pictures:
                broken = broken + 1 if pixels is None else 0
                if time is not None:
                    start = float(time) if start is None else start
                    seconds = max(0.0, float(time) - start)
                yield Frame(number, seconds, pixels)
                number, seconds = number + 1, seconds + 1 / self.rate


def read_video(source: str | Path) -> Iterator[Frame]:
    """Yield the frames of a video file or camera; see :class:`VideoReader`."""
    with VideoReader(source) as video:
        yield from video


class VideoWriter:
    """Writer of video files with a constant rate (H.264 where PyAV has it, else MPEG-4).

    Args:
        path: ends in .mp4, .mkv, .mov or .avi.
        rate: frames per second.
        size: rows and columns; both are rounded down to even.
    """

    def __init__(self, path: Path, rate: float, size: tuple[int, int]) -> None:
        av = load_av()
        from fractions import Fraction

        self._av = av
        self.size = (size[0] - size[0] % 2, size[1] - size[1] % 2)
        require_video_path(path)
        try:
            self._container: Any = av.open(str(path), "w", format=FORMATS[path.suffix.lower()])
        except (av.error.FFmpegError, OSError) as error:
            raise ValueError(f"{path} cannot be written ({_reason(error)}): give another folder") from error
        codec = "libx264" if "libx264" in av.codecs_available else "mpeg4"
        self._stream = self._container.add_stream(codec, rate=Fraction(rate).limit_denominator(1001))
        self._stream.height, self._stream.width = self.size
        self._stream.pix_fmt = "yuv420p"
        if codec == "libx264":
            self._stream.options = {"preset": "ultrafast", "crf": "20"}
        self._stream.thread_count = 1

    def add(self, pixels: np.ndarray) -> None:
        """Append a frame, uint8 ``[y, x, 3]``."""
        y, x = self.size
        frame = self._av.VideoFrame.from_ndarray(np.ascontiguousarray(pixels[:y, :x]), format="rgb24")
        for packet in self._stream.encode(frame):
            self._container.mux(packet)

    def close(self) -> None:
        """Flush the encoder and close the file."""
        for packet in self._stream.encode():
            self._container.mux(packet)
        self._container.close()


def require_video_path(path: Path) -> None:
    """Raise ``ValueError`` unless the ending of the path is supported."""
    require(path.suffix.lower() in FORMATS, "out", str(path), f"end it in one of {', '.join(FORMATS)}")


def load_av() -> Any:
    """Import PyAV; ``ValueError`` where it is missing."""
    try:
        import av
        import av.logging
    except ImportError as error:
        raise ValueError("videos are read with PyAV: run pip install av") from error
    av.logging.set_level(av.logging.PANIC)  # we report broken frames ourselves
    return av


def _target(source: str) -> tuple[str, dict[str, Any]]:
    """Return what PyAV opens, and its options."""
    if source.isdecimal():
        if sys.platform == "darwin":
            return source, {"format": "avfoundation"}
        if sys.platform == "win32":
            return f"video={source}", {"format": "dshow"}
        source = f"/dev/video{source}"
    if source.startswith("/dev/"):
        if not Path(source).exists():
            raise ValueError(f"{source} does not exist: there is no such camera")
        return source, {"format": "v4l2"}
    return source, {}


def _pixels(frame: Any) -> np.ndarray | None:
    """Convert a decoded frame to pixels, rotated as its file says; None where the decoder guessed."""
    if frame.is_corrupt:
        return None
    return np.ascontiguousarray(np.rot90(frame.to_ndarray(format="rgb24"), round(frame.rotation / 90)))


def _reason(error: Exception) -> str:
    return " ".join(str(error).split())[:160]
