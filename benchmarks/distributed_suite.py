"""Plans of distributed.py: sets of runs, in the order of their use.

`documented` has the runs of the documented tables. The others are for a machine with one GPU and 16
cores, and are planned to take at most four minutes there.
"""

import argparse
import math

from distributed_jobs import Job, identity, is_done

OUTER = (
    "diloco", "sparseloco_320", "outer_flush_300", "outer_unsent_300",
    "outer_flush_300_0.7", "outer_aquila_topk_300_sgd", "sparseloco",
)  # fmt: skip
MORE_OUTER = (
    "average", "outer_unsent_300_0.7", "outer_unsent_100", "outer_aquila_dither_300",
    "outer_unsent_600", "outer_aquila_topk", "outer_aquila_dither",
    "outer_aquila_topk_300",
)  # fmt: skip
TIMED = ("diloco", "outer_flush_300", "outer_aquila_topk_300", "outer_aquila_dither_300", "ddp")
EIGHT = ("diloco", "sparseloco_320", "outer_flush_300", "sparseloco")

GPT = {
    "task": "gpt", "ranks": 4, "steps": 3000, "batch": 8, "width": 128, "layers": 4,
    "evaluate_every": 300, "test_samples": 1000, "lr": 1e-3,
}  # fmt: skip
RESNET = {
    "task": "resnet18", "ranks": 4, "steps": 1500, "batch": 64, "every": 15,
    "evaluate_every": 150, "test_samples": 10_000, "lr": 1e-3,
}  # fmt: skip

PLAN = (
    ({**GPT, "every": 15, "steps": 150, "evaluate_every": 75, "alone": True}, TIMED),
    (GPT, ("ddp",)),
    (RESNET, ("ddp",)),
    ({**GPT, "every": 15}, OUTER[:4]),
    (RESNET, ("diloco", "outer_aquila_topk_300_sgd", "outer_flush_300", "outer_flush_300_0.7")),
    ({**GPT, "every": 50}, OUTER),
    ({**GPT, "every": 15}, OUTER[4:]),
    (GPT, ("ddp_powersgd_2", "ddp_fp16")),
    ({**GPT, "every": 15}, MORE_OUTER[:4]),
    ({**GPT, "every": 250, "evaluate_every": 250}, OUTER),
    ({**GPT, "ranks": 8, "every": 15}, EIGHT),
    (RESNET, ("ddp_powersgd_2", "sparseloco", "outer_unsent_300", "outer_aquila_topk_300")),
    (GPT, ("ddp_powersgd_1", "ddp_powersgd_4")),
    ({**GPT, "every": 50}, MORE_OUTER),
    ({**GPT, "every": 15}, MORE_OUTER[4:]),
    ({**GPT, "every": 250, "evaluate_every": 250}, MORE_OUTER[:3]),
    ({**GPT, "ranks": 8, "every": 50}, EIGHT),
    ({**GPT, "every": 15}, ("hook_aquila_topk",)),
)
"""Settings and rivals. Runs that are `alone` give times; the others share the machine."""

RESNET_RIVALS = (
    "ddp", "ddp_fp16", "ddp_powersgd_1", "ddp_powersgd_2", "ddp_powersgd_4", "hook_aquila_topk",
    "diloco", "outer_aquila_topk_300_sgd", "outer_aquila_dither_300", "sparseloco_320",
    "outer_flush_300", "outer_flush_300_avg", "sparseloco",
)  # fmt: skip
GPT_EIGHT_RIVALS = (
    "diloco", "average", "sparseloco_320", "outer_flush1_300_avg", "outer_flush3_300_avg",
    "outer_aquila_topk_300_sgd",
)  # fmt: skip
FLUSHED = ("outer_flush_300_avg", "outer_flush3_300_avg", "average", "sparseloco_320")
PLANS = {
    "documented": PLAN,
    "resnet18": (({**RESNET, "every": 10, "steps": 600, "evaluate_every": 300}, RESNET_RIVALS),),
    "gpt_eight": (
        (
            {**GPT, "ranks": 8, "every": 250, "steps": 2500, "evaluate_every": 1250},
            GPT_EIGHT_RIVALS,
        ),
    ),
    "gpt_flush": (({**GPT, "every": 15}, FLUSHED), ({**GPT, "every": 50}, FLUSHED[1:])),
}
"""Plans by their name."""

TINY = {
    "steps": 30, "batch": 4, "width": 16, "layers": 1, "heads": 2, "evaluate_every": 15,
    "test_samples": 20,
}  # fmt: skip
"""Settings of a trial that shows in minutes on CPUs whether all runs work."""


def planned_jobs(args):
    """Return the jobs of the plan that the results do not have."""
    jobs, known = [], []
    for changes, rivals in PLANS[args.plan]:
        settings = {**vars(args), **changes, **(TINY if args.tiny else {})}
        settings["every"] = min(settings["every"], settings["steps"] // 2)
        alone = settings.pop("alone", False)
        for name in rivals:
            own = argparse.Namespace(**settings)
            wanted = identity(name, own)
            if own.ranks <= args.cores and wanted not in known and not is_done(name, own):
                known.append(wanted)
                jobs.append(Job(name, own, args.limit or math.inf, alone))
    return jobs
