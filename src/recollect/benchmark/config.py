"""Settings of the benchmarks. Importing them does not import torch."""

from dataclasses import dataclass
from typing import Any, Literal

from recollect.config import lookup, require, require_name
from recollect.cores import CORES

POSITIONS = (100, 1_000, 10_000, 100_000)
QUICK: dict[str, Any] = {"dim": 16, "layers": 2, "heads": 2, "memory_len": 8, "chunk_len": 4, "chunks": 4, "top_k": 2}
"""Sizes of cores in test runs: fields of :class:`CoresBenchmark`."""


@dataclass(frozen=True, kw_only=True)
class CoresBenchmark:
    """Speed, bytes and FLOPs of memory cores at one common shape."""

    cores: tuple[str, ...] = ()
    """Cores to measure, also package.module:Config; all of this library when empty."""
    dim: int = 512
    """Width of inputs and cores."""
    layers: int = 4
    """Number of layers, in cores that have them."""
    heads: int = 8
    """Number of attention heads, in cores that have them."""
    memory_len: int = 256
    """Steps of the window, in cores that have one."""
    chunk_len: int = 32
    """Steps of a chunk, in cores that have them."""
    chunks: int = 16
    """Number of stored chunks, in cores with a fixed number."""
    top_k: int = 8
    """Chunks that a query reads, in cores that select some."""
    repeats: int = 5
    """Rounds of every timing; the best counts, the median is saved too."""
    long: bool = False
    """Also measure position 10^6 of a stream."""
    patience: float = 60.0
    """Seconds in which single steps must reach a position, and whole-sequence calls within four times that; later
    positions are skipped. The slowest cores need a quarter of an hour for 10^5."""
    quick: bool = False
    """Test run of seconds: width 16, two layers, short memories, positions 10^2 and 10^3. Its speeds mean nothing."""
    output: str = "benchmarks/results"
    """Folder for the CSV and JSON files; empty saves nothing."""

    def __post_init__(self) -> None:
        for name in self.cores:
            require_name("cores", name, CORES)
        _require_at_least(self, 1, "dim", "layers", "heads", "memory_len", "chunk_len", "chunks", "top_k")
        _require_at_least(self, 2, "repeats")
        require(self.dim % self.heads == 0, "heads", self.heads, f"choose a divisor of dim={self.dim}")
        require(self.patience > 0, "patience", self.patience, "give some seconds")

    @property
    def positions(self) -> tuple[int, ...]:
        """Positions in the stream at which steps are timed."""
        return POSITIONS[:2] if self.quick else (*POSITIONS, 1_000_000) if self.long else POSITIONS

    @property
    def batches(self) -> tuple[int, ...]:
        """Batch sizes of all timings."""
        return (1, 4) if self.quick else (1, 32)

    @property
    def steps(self) -> int:
        """Steps of a whole-sequence call."""
        return 16 if self.quick else 64


@dataclass(frozen=True, kw_only=True)
class OpsBenchmark:
    """Time of every hand-written kernel and of its plain twin, forward and backward where there are gradients."""

    ops: tuple[str, ...] = ()
    """Operations to measure; all of them when empty."""
    dim: int = 512
    """Width of the matrices."""
    repeats: int = 7
    """Rounds, in which kernel and twin take turns. The best counts."""
    seconds: float = 0.1
    """Duration of each of the two in a round."""
    quick: bool = False
    """Test run at width 16 and 2 rows. Its speeds mean nothing."""
    output: str = "benchmarks/results"
    """Folder for the CSV and JSON files; empty saves nothing."""

    def __post_init__(self) -> None:
        if self.ops:
            from recollect.ops import OPS

            for name in self.ops:
                lookup(OPS, name, "operation")
        _require_at_least(self, 1, "dim")
        _require_at_least(self, 2, "repeats")
        require(self.seconds >= 0, "seconds", self.seconds, "give a time, or 0 for single calls")


@dataclass(frozen=True, kw_only=True)
class ChunksBenchmark:
    """Time and memory of the bottleneck by chunk length beside explicit and fused attention (table 5 of the paper)."""

    length: int = 4000
    """Steps of a row."""
    batch_size: int = 1
    """Rows of a call."""
    chunks: tuple[int, ...] = (1000, 100, 40, 20, 10)
    """Chunk lengths."""
    explicit: bool = True
    """Also measure attention that stores its weights, which takes gigabytes for every row."""
    dtype: str = "float32"
    """float32, or bfloat16 by autocast."""
    device: str = "cpu"
    """Device: cpu, cuda, ..."""
    repeats: int = 3
    """Rounds of every timing; the best counts."""
    quick: bool = False
    """Test run with rows of 64 steps. Its speeds mean nothing."""
    output: str = "benchmarks/results"
    """Folder for the CSV and JSON files; empty saves nothing."""

    def __post_init__(self) -> None:
        _require_at_least(self, 1, "length", "batch_size")
        _require_at_least(self, 2, "repeats")
        require(len(self.chunks) > 0, "chunks", self.chunks, "give at least one length, such as 100")
        require(all(chunk >= 1 for chunk in self.chunks), "chunks", self.chunks, "use lengths of at least 1")
        require(self.dtype in ("float32", "bfloat16"), "dtype", self.dtype, "choose float32 or bfloat16")


@dataclass(frozen=True, kw_only=True)
class ExportBenchmark:
    """Time of an exported step of every core, beside a step of its stream, at the cores' default sizes."""

    cores: tuple[str, ...] = ()
    """Cores to measure; all of them when empty."""
    formats: tuple[str, ...] = ("onnx", "aoti")
    """Formats: onnx (onnxruntime), pt2 (torch), aoti (compiled by torch with a C++ compiler: minutes a core)."""
    batch: int = 1
    """Rows."""
    repeats: int = 15
    """Rounds, in which stream and program take turns."""
    seconds: float = 0.2
    """Duration of each of the two in a round."""
    quick: bool = False
    """Test run at certification sizes. Its speeds mean nothing."""
    output: str = "benchmarks/results"
    """Folder for the CSV and JSON files; empty saves nothing."""

    def __post_init__(self) -> None:
        for name in self.cores:
            lookup(CORES, name, "core")
        for name in self.formats:
            require(name in ("onnx", "pt2", "aoti"), "formats", name, "choose onnx, pt2 or aoti")
        require(len(self.formats) > 0, "formats", self.formats, "give at least one, such as onnx")
        _require_at_least(self, 1, "batch")
        _require_at_least(self, 2, "repeats")
        require(self.seconds >= 0, "seconds", self.seconds, "give a time, or 0 for single calls")


@dataclass(frozen=True, kw_only=True)
class RooflineBenchmark:
    """Time of training and of a step of every core beside the least time that its arithmetic and its bytes take."""

    cores: tuple[str, ...] = ()
    """Cores to measure, also package.module:Config; all of this library when empty."""
    batch: int = 8
    """Rows of a training call; a step has one row."""
    steps: int = 64
    """Steps of a training call, from a full memory."""
    repeats: int = 5
    """Rounds of every timing; the best counts."""
    quick: bool = False
    """Test run at width 16. Its speeds mean nothing."""
    output: str = "benchmarks/results"
    """Folder for the CSV and JSON files; empty saves nothing."""

    def __post_init__(self) -> None:
        for name in self.cores:
            require_name("cores", name, CORES)
        _require_at_least(self, 1, "batch", "steps")
        _require_at_least(self, 2, "repeats")


@dataclass(frozen=True, kw_only=True)
class PrecisionBenchmark:
    """Agreement of reduced weights and caches with float32 over a long run of a trained agent, and speed of steps."""

    model: str = "model:t-maze-hcam"
    """Agent: run directory, model folder or model:NAME."""
    steps: int = 100_000
    """Steps of single rows that are compared."""
    rows: int = 32
    """Rows that act together."""
    seed: int = 5
    """Seed of the world."""
    dim: int = 512
    """Width of the Transformer-XL that is timed."""
    layers: int = 4
    """Its layers."""
    memory_len: int = 64
    """Its window."""
    batches: tuple[int, ...] = (1, 8)
    """Rows of the timed steps."""
    repeats: int = 9
    """Rounds, in which the formats take turns."""
    seconds: float = 0.1
    """Duration of each of them in a round."""
    quick: bool = False
    """Test run of seconds with a small core. Its speeds mean nothing."""
    output: str = "benchmarks/results"
    """Folder for the CSV and JSON files; empty saves nothing."""

    def __post_init__(self) -> None:
        _require_at_least(self, 1, "steps", "rows", "dim", "layers", "memory_len")
        _require_at_least(self, 2, "repeats")
        _require_all_at_least(self, 1, "batches")
        require(self.seconds >= 0, "seconds", self.seconds, "give a time, or 0 for single calls")


@dataclass(frozen=True, kw_only=True)
class NeighboursBenchmark:
    """Times of single steps beside busy processes, on one thread, on all, and by the default of streams."""

    cores: tuple[str, ...] = ("lstm", "hcam", "transformer-xl")
    """Cores, at their default sizes."""
    input_dim: int = 64
    """Width of their inputs."""
    neighbours: tuple[int, ...] = (0, 1, 2)
    """Busy processes beside the steps."""
    repeats: int = 7
    """Rounds, in which the forms take turns."""
    steps: int = 400
    """Steps of each form in a round."""
    quick: bool = False
    """Test run with few steps. Its speeds mean nothing."""
    output: str = "benchmarks/results"
    """Folder for the CSV and JSON files; empty saves nothing."""

    def __post_init__(self) -> None:
        if self.quick:
            for name, value in {"neighbours": (0, 1), "repeats": 2, "steps": 5, "cores": ("lstm",)}.items():
                object.__setattr__(self, name, value)
        for name in self.cores:
            lookup(CORES, name, "core")
        _require_at_least(self, 1, "input_dim", "repeats", "steps")
        require(len(self.cores) > 0, "cores", self.cores, "give at least one, such as lstm")
        _require_all_at_least(self, 0, "neighbours")


@dataclass(frozen=True, kw_only=True)
class ServingBenchmark:
    """Steps per second, answer times and memory of a store of live streams."""

    model: str = "model:t-maze-hcam"
    """Model: run directory, model folder or model:NAME."""
    streams: int = 2000
    """Live streams."""
    askers: tuple[int, ...] = (64, 256)
    """Clients, each with one request at a time, of a stream drawn at random."""
    ages: tuple[int, ...] = (300, 40)
    """Steps that each stream has taken before: 300 fill the 33 chunks of 8 steps of the default model, 40 fill 5."""
    formats: tuple[str, ...] = ("float32/float32", "float32/bfloat16")
    """Formats WEIGHTS/CACHE of the streams, which take turns."""
    seed: int = 0
    """Seed of the choice of streams and inputs."""
    repeats: int = 7
    """Rounds."""
    seconds: float = 1.0
    """Duration of each format in a round."""
    quick: bool = False
    """Test run with 8 streams. Its speeds mean nothing."""
    output: str = "benchmarks/results"
    """Folder for the CSV and JSON files; empty saves nothing."""

    def __post_init__(self) -> None:
        if self.quick:
            for name, value in {"streams": 8, "askers": (2, 4), "ages": (20, 9), "repeats": 2, "seconds": 0.05}.items():
                object.__setattr__(self, name, value)
        _require_at_least(self, 1, "streams")
        _require_at_least(self, 2, "repeats")
        _require_all_at_least(self, 1, "ages", "askers")
        most = max(self.askers)
        require(most <= self.streams, "askers", self.askers, f"use at most streams={self.streams}")
        require(self.seconds > 0, "seconds", self.seconds, "give some seconds")
        require(len(self.formats) > 0, "formats", self.formats, "give WEIGHTS/CACHE, such as float32/bfloat16")
        for name in self.formats:
            require(name.count("/") == 1, "formats", name, "give WEIGHTS/CACHE, such as float32/bfloat16")


@dataclass(frozen=True)
class SoakBenchmark:
    """Resident memory of a store of live streams over very many steps, on one thread."""

    model: str = "model:t-maze-hcam"
    """Model: run directory, model folder or model:NAME."""
    streams: int = 2000
    """Live streams."""
    askers: int = 64
    """Clients, each with one request at a time, of a stream drawn at random."""
    age: int = 300
    """Steps that each stream has taken before."""
    cache: Literal["float32", "bfloat16"] = "float32"
    """Format of what is kept of steps."""
    steps: int = 10_000_000
    """Steps of all streams together."""
    readings: int = 20
    """Readings of the resident memory; the first one comes after as many steps as there are between two."""
    seed: int = 0
    """Seed of the choice of streams and inputs."""
    quick: bool = False
    """Test run with 8 streams."""
    output: str = "benchmarks/results"
    """Folder for the CSV and JSON files; empty saves nothing."""

    def __post_init__(self) -> None:
        if self.quick:
            for name, value in {"streams": 8, "askers": 4, "age": 9, "steps": 200, "readings": 4}.items():
                object.__setattr__(self, name, value)
        _require_at_least(self, 1, "streams", "age")
        _require_at_least(self, 2, "readings")
        require(1 <= self.askers <= self.streams, "askers", self.askers, f"use 1 to {self.streams}")
        require(self.steps >= self.readings, "steps", self.steps, f"use at least readings={self.readings}")


@dataclass(frozen=True)
class HTTPBenchmark:
    """Steps per second and answer times of `recollect serve` over HTTP on the loopback address."""

    model: str = "model:t-maze-hcam"
    """Model: run directory, model folder or model:NAME."""
    connections: tuple[int, ...] = (1, 8)
    """Connections, each with one request at a time."""
    together: tuple[int, ...] = (1, 32)
    """Streams of one request; each connection has streams of its own."""
    cache: Literal["float32", "bfloat16"] = "float32"
    """Format of what the server keeps of steps."""
    repeats: int = 7
    """Rounds."""
    seconds: float = 2.0
    """Duration of a round."""
    quick: bool = False
    """Test run with a few requests. Its speeds mean nothing."""
    output: str = "benchmarks/results"
    """Folder for the CSV and JSON files; empty saves nothing."""

    def __post_init__(self) -> None:
        if self.quick:
            for name, value in {"connections": (2,), "together": (1, 3), "repeats": 2, "seconds": 0.05}.items():
                object.__setattr__(self, name, value)
        _require_at_least(self, 2, "repeats")
        _require_all_at_least(self, 1, "connections", "together")
        require(self.seconds > 0, "seconds", self.seconds, "give some seconds")


def _require_at_least(config: object, least: int, *fields: str) -> None:
    for field in fields:
        require(getattr(config, field) >= least, field, getattr(config, field), f"use at least {least}")


def _require_all_at_least(config: object, least: int, *fields: str) -> None:
    """Check fields with several numbers, of which there must be one."""
    for field in fields:
        numbers = getattr(config, field)
        good = len(numbers) > 0 and min(numbers) >= least
        require(good, field, numbers, f"give one number or more, each at least {least}")
