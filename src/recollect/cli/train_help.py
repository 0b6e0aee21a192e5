"""``recollect train --help``: the common flags of a core on a task, or all of them."""

from typing import Any

from rich.console import Console

from recollect.cli import flags
from recollect.cli.train_request import CORE, Request
from recollect.cores import CORES
from recollect.entry_points import installed_names
from recollect.recipes.attention_agents import ATTENTION_AGENTS
from recollect.tasks import TASKS
from recollect.terminal import two_columns

OPTIONS = {
    "TASK": f"Task to learn: {', '.join([*TASKS, *installed_names('tasks')])}, gym:ID (any Gymnasium environment), "
    "recording:FILE.npz (episodes to imitate without a world), module:Class.",
    "--core KEY": f"The memory: {', '.join([*CORES, *installed_names('cores')])}, module:Config. [{CORE}]",
    "--agent NAME": "In a world of images, a whole agent of George 2021 in place of --core: "
    f"{', '.join(ATTENTION_AGENTS)}.",
    "--trainer KEY": "Another way to learn: in a world, cloning imitates (--teacher), and decision-transformer learns "
    "from recorded episodes (--data).",
    "--imitate INT": "In a world: imitate a teacher for this many steps, then reinforce; the pull towards the teacher "
    "fades.",
    "--teacher NAME": "The teacher: oracle, a run, or, for cloning, FILE.npz, minari:NAME or lerobot:FOLDER. [oracle]",
    "--data NAME": "Recorded episodes for a decision-transformer: FILE.npz, minari:DATASET or dqn-replay:FOLDER.",
    "--directory PATH": "Run directory. [runs/<task>-<core|agent>-seed<seed>]",
    "--resume": "Continue the run in that directory; more --steps, another --stop-score or evaluation are allowed.",
    "--config FILE": "Begin with the settings of a run's config.json, in place of TASK and --core; flags on top.",
    "--from RUN": "Begin with the newest weights of another run; RUN/best for its best ones.",
    "--seeds INT ...": "One run for each seed, one after the other or --parallel N at a time, then a table.",
    "--world.options KEY=VALUE ...": "Keywords of a Gymnasium environment: numbers, true, false, none, JSON or text.",
    "--log NAME ...": "Also write the metrics for tensorboard or wandb; metrics.csv is always written.",
    "--wandb-project NAME": "The metrics in this project of Weights & Biases (extra wandb).",
    "--trust": "Import the packages that a run's config.json names: that runs their code.",
    "--help-all": "Every flag: of trainer, task, core, agent, optimiser, loss.",
}
EXAMPLES = """
examples:
  recollect train gym:CartPole-v1 --core lstm --steps 300 --lr 1e-3
  recollect train recall --core gru --seeds 0 1 2
  recollect train --resume --directory runs/recall-gru-seed0 --steps 900"""


def show_help(request: Request, console: Console) -> bool:
    """Print the help; return False where only the parser can, because it has to import what was named."""
    saved = request.saved_settings()
    if request.agent is not None and request.task is not None:
        return False  # the defaults depend on what the world shows
    task, core = (saved.task, saved.core) if saved else (request.task or "recall", request.core_name)
    trainer = saved.trainer if saved else request.trainer
    known, own = flags.run_flags(task, core, trainer), ()
    if known is None and request.help == "--help":
        known, own = flags.likely_flags(task, core, trainer)
    if not known:
        return False
    known = saved.as_defaults(known) if saved else known
    show: dict[str, Any] = {"highlight": False, "soft_wrap": True, "markup": False}
    console.print("usage: recollect train TASK [--core KEY] [flags]", **show)
    console.print("\nTrain a memory on a task, and keep the run in a directory that describes itself.\n", **show)
    console.print(two_columns(OPTIONS))
    which = "All" if request.help == "--help-all" else "Common"
    console.print(f"\n{which} flags of {core} on {task}, in brackets the defaults:\n", **show)
    console.print(two_columns(flags.all_rows(known) if request.help == "--help-all" else flags.common_rows(known)))
    if own:
        stars = " and ".join(f"{start}*" for start in own)
        console.print(f"\n--help-all imports what you named, and shows its own flags too ({stars}).", **show)
    if request.task is None and saved is None:
        console.print("\nEach task and core has its own: name them. In a world also, as for t-maze:\n", **show)
        world = flags.common_rows(flags.run_flags("t-maze", core) or {})
        console.print(two_columns({name: world[name] for name in world if name.startswith(("--gamma", "--ent-coef"))}))
    console.print(EXAMPLES, **show)
    return True
