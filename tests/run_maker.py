"""Run directories with chosen scores, written by the library's own writers."""

from dataclasses import replace

from recollect.config import to_json
from recollect.cores import CORES
from recollect.runs.metrics import MetricsFile
from recollect.runs.run_directory import RunDirectory
from recollect.tasks import Copying
from recollect.training import REGISTRY, FitConfig, SupervisedConfig
from small_runs import recall

TASKS = {
    "recall": recall(),
    "copying": Copying(),
}


def make_run(folder, core, seed, scores, *, task="recall", every=10, planned=None, extra=None, **settings):
    """A run that was evaluated every ``every`` steps, with these scores; ``extra`` has more columns."""
    extra = extra or {}
    steps = planned or every * len(scores)
    config = SupervisedConfig(
        task=TASKS[task],
        core=CORES[core](),
        fit=FitConfig(steps=steps, seed=seed, evaluate_every=every, stop_score=settings.pop("stop_score", None)),
    )
    config = replace(config, **settings)
    run = RunDirectory(folder / f"{task}-{core}-{seed}-{len(list(folder.glob('*')))}")
    run.open(to_json(config, REGISTRY), resume=False)
    file = MetricsFile(run.metrics_file, ("seconds", "loss", "score", *extra), 0)
    for index, score in enumerate(scores):
        step = every * (index + 1)
        file.append(step - every // 2, {"seconds": (step - every // 2) / 10, "loss": 1.0})
        row = {"seconds": step / 10} | ({} if score is None else {"score": score})
        file.append(step, row | {name: values[index] for name, values in extra.items()})
    return run.path
