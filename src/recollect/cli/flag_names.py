"""Short names of common flags, and the names that other libraries give to flags of ours."""

COMMON: tuple[tuple[str, str], ...] = (
    ("--steps", "--fit.steps"),
    ("--seed", "--fit.seed"),
    ("--lr", "--optimizer.learning-rate"),
    ("--num-envs", "--batch-size"),
    ("--unroll", "--unroll"),
    ("--gamma", "--loss.discount"),
    ("--ent-coef", "--loss.entropy-cost"),
    ("--dim", "--core.dim"),
    ("--num-layers", "--core.num-layers"),
    ("--evaluate-every", "--fit.evaluate-every"),
    ("--stop-score", "--fit.stop-score"),
    ("--device", "--device"),
)
"""The flags that ``--help`` shows: short name, full name."""

_SYNONYMS: dict[str, tuple[str, ...]] = {
    "--optimizer.learning-rate": ("--learning-rate",),
    "--batch-size": ("--n-envs", "--num-environments"),
    "--unroll": ("--num-steps", "--n-steps", "--rollout-length", "--unroll-length"),
    "--loss.discount": ("--discount", "--discounting"),
    "--loss.entropy-cost": ("--entropy-coef", "--entropy-cost"),
    "--loss.baseline-cost": ("--vf-coef", "--value-coef", "--baseline-cost"),
    "--optimizer.clip-norm": ("--max-grad-norm", "--clip-norm", "--grad-norm-clipping"),
    "--loss.reuse.passes": ("--n-epochs", "--update-epochs"),
    "--loss.reuse.minibatches": ("--num-minibatches",),
    "--loss.reuse.surrogate-clip": ("--clip-coef", "--clip-range"),
    "--loss.vtrace.lambda_": ("--gae-lambda",),
    "--loss.imitation.steps": ("--imitate",),
    "--loss.imitation.teacher.name": ("--teacher",),
    "--data.source": ("--data", "--dataset"),
    "--core.dim": ("--hidden-size", "--d-model"),
    "--optimizer.weight-decay": ("--weight-decay",),
    "--schedule.engine": ("--engine",),
    "--schedule.actors": ("--actors",),
    "--schedule.address": ("--address",),
    "--fit.report-every": ("--report-every",),
    "--fit.report-seconds": ("--report-seconds",),
    "--fit.checkpoint-every": ("--checkpoint-every",),
    "--start-from": ("--from",),
}

ALIASES: dict[str, str] = {short: flag for short, flag in COMMON if short != flag} | {
    synonym: flag for flag, synonyms in _SYNONYMS.items() for synonym in synonyms
}
"""Full name of every accepted synonym."""

_REMEDIES: dict[str, tuple[str, ...]] = {
    "use --steps, which counts optimiser steps (in a world, one is batch-size x unroll steps there)": (
        "--total-timesteps", "--timesteps", "--total-steps", "--frames", "--num-frames", "--max-steps",
    ),
    "use --steps (of the optimiser) or --n-epochs (over a rollout)": ("--epochs", "--num-epochs"),
    "use --evaluate-every": ("--eval-freq", "--eval-every", "--eval-interval"),
    "use --checkpoint-every": ("--save-freq", "--save-every", "--save-interval"),
    "use --report-every or --report-seconds": ("--log-interval", "--log-every", "--log-freq"),
    "use --evaluation.episodes": ("--eval-episodes", "--n-eval-episodes"),
    "the task comes first: recollect train gym:ID": ("--env", "--env-id", "--task", "--env-name"),
    "use --core KEY": ("--model", "--policy", "--network", "--memory", "--arch"),
    "use --directory": (
        "--logdir", "--log-dir", "--output", "--output-dir", "--out", "--save-dir", "--savedir", "--run-dir",
    ),
    "use --log wandb": ("--wandb", "--track", "--use-wandb"),
    "use --wandb-project": ("--wandb-project-name", "--project"),
    "use --device cuda": ("--cuda", "--gpu", "--use-cuda"),
    "use --optimizer.algorithm": ("--optimizer", "--optim"),
    "use --optimizer.betas or --optimizer.smoothing": ("--momentum",),
    "use --actors, and --engine ray for processes": ("--num-workers", "--num-actors", "--workers"),
    "use --from RUN": ("--checkpoint", "--load", "--load-path", "--pretrained", "--init-from"),
    "use --resume": ("--continue", "--restore"),
}  # fmt: skip

REMEDIES: dict[str, str] = {flag: remedy for remedy, flags in _REMEDIES.items() for flag in flags}
"""What to type in place of flags of other libraries that have no exact counterpart here."""
