"""Loss against bytes and time: DDP with its hooks, DiLoCo, SparseLoCo and methods of this project.

    python benchmarks/distributed.py run --task cnn --ranks 2 --steps 600 --out results/distributed
    python benchmarks/distributed.py run --task gpt --ranks 4 --device cuda --every 50 --out FOLDER
    python benchmarks/distributed.py table results/distributed/cnn.jsonl

`run` trains one model per rival on all ranks, which are processes of this machine on gloo. It
appends one JSON line per run to FOLDER/TASK.jsonl and leaves out runs that the file has.
`--link 10` limits every rank to 10 Mbit/s while it trains. `table` prints the last loss, the bytes
per rank and the time. For links that were not run, it adds bytes ÷ rate to the time without limit;
nothing overlaps then, as with `--link`.
"""

import argparse
import json
import math
import os
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from distributed_rivals import RIVALS, SHORT, Rival
from distributed_tasks import make_task
from machine import cpu_name

LINKS = (10, 100, 1000)
MEGABIT = 1e6
DENSE = {"ddp": "ddp", "hook": "ddp", "outer": "diloco"}
"""The dense rival with the same number of exchanges, per kind."""
SETTING = (
    "task", "ranks", "every", "steps", "batch", "lr", "seed", "device", "bf16", "width", "layers",
)  # fmt: skip
"""What the runs of one table share."""


def learning_rate(step, args):
    """Return the rate of a step: a warm-up over 5 % of the steps, then half a cosine."""
    warmup = max(1, args.steps // 20)
    if step < warmup:
        return args.lr * (step + 1) / warmup
    return args.lr * (1 + math.cos(math.pi * (step - warmup) / max(1, args.steps - warmup))) / 2


def train(rank, name, args, store, out):
    """Train one rival on one rank; rank 0 writes the curve."""
    torch.set_num_threads(1)
    os.nice(args.nice)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=args.ranks)
    task = make_task(args.task, rank, args.ranks, args)
    rival = Rival(name, task, args.every, args.link * MEGABIT)
    optimizer = torch.optim.AdamW(task.model.parameters(), lr=args.lr, weight_decay=0.1)
    curve, seconds = [], 0.0
    dist.barrier()
    started = time.perf_counter()
    for step in range(args.steps):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, args)
        x, y = task.batch(step, args.batch)
        optimizer.zero_grad()
        with torch.autocast(args.device, torch.bfloat16, enabled=args.bf16):
            outputs = rival.model(x)
        loss = task.loss(outputs.float(), y)
        loss.backward()
        optimizer.step()
        rival.after_batch(loss)
        if (step + 1) % args.evaluate_every == 0 or step + 1 == args.steps:
            dist.barrier()
            seconds += time.perf_counter() - started
            if rank == 0:
                point = (step + 1, task.test_loss(), rival.bytes_sent, rival.link_bytes, seconds)
                curve.append(point)
            dist.barrier()
            started = time.perf_counter()
    if rank == 0:
        Path(out).write_text(json.dumps(curve))
    dist.destroy_process_group()


def identity(name, args):
    """Return what distinguishes a run from others."""
    return {"rival": name, "link": args.link, **{key: getattr(args, key) for key in SETTING}}


def run(args):
    """Run the rivals that the file does not have yet."""
    file = Path(args.out) / f"{args.task}.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    done = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    for name in args.rivals.split(","):
        if name not in RIVALS:
            raise SystemExit(f"there is no rival {name!r}; known: {', '.join(RIVALS)}")
        wanted = identity(name, args)
        if any(wanted.items() <= one.items() for one in done):
            continue
        with tempfile.TemporaryDirectory() as folder:
            out = f"{folder}/curve.json"
            torch.multiprocessing.start_processes(
                train,
                (name, args, f"{folder}/store", out),
                nprocs=args.ranks,
                start_method="fork" if args.device == "cpu" else "spawn",
            )
            curve = json.loads(Path(out).read_text())
        cuda = args.device == "cuda"
        machine = torch.cuda.get_device_name() if cuda else f"{os.cpu_count()} cores, {cpu_name()}"
        entry = {**wanted, "machine": machine, "torch": torch.__version__, "curve": curve}
        with file.open("a") as lines:
            lines.write(json.dumps(entry) + "\n")
        print(
            name, "loss", curve[-1][1], "bytes", curve[-1][2], "seconds", curve[-1][4], flush=True
        )


def time_at(entry, link, entries):
    """Return the seconds of a run on a link in Mbit/s, measured if it was run, else computed."""
    for other in entries:
        if other["link"] == link and all(other[key] == entry[key] for key in (*SETTING, "rival")):
            return f"{other['curve'][-1][4]:,.0f}"
    _, _, _, link_bytes, seconds = entry["curve"][-1]
    return f"*{seconds + 8 * link_bytes / (link * MEGABIT):,.0f}*"


def table(args):
    """Print one table per setting of a file; computed times are in italics."""
    entries = [json.loads(line) for line in Path(args.file).read_text().splitlines()]
    groups = {}
    for entry in entries:
        if not entry["link"]:
            groups.setdefault(tuple(entry[key] for key in SETTING), []).append(entry)
    for setting, runs in groups.items():
        print(f"\n{dict(zip(SETTING, setting, strict=True))}\n")
        print("| rival | loss | ÷ dense | MB per rank | dense MB ÷ this | seconds |", end="")
        print("".join(f" at {link} Mbit/s |" for link in LINKS))
        print("|---|" + "---:|" * (5 + len(LINKS)))
        last = {run["rival"]: run["curve"][-1] for run in runs}
        for one in runs:
            dense = last.get(DENSE[RIVALS[one["rival"]][0]])
            _, loss, sent, _, seconds = one["curve"][-1]
            ratios = ("", "") if dense is None else (loss / dense[1], dense[2] / sent)
            quality, saving = (f"{ratio:,.4g}" if ratio else "" for ratio in ratios)
            cells = (one["rival"], f"{loss:.4f}", quality, f"{sent / 1e6:,.3f}", saving)
            times = (f"{seconds:,.0f}", *(time_at(one, link, entries) for link in LINKS))
            print(f"| {' | '.join((*cells, *times))} |")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    training = commands.add_parser("run", help="train the rivals")
    training.set_defaults(function=run)
    training.add_argument("--task", default="cnn", choices=("digits", "cnn", "resnet18", "gpt"))
    training.add_argument("--rivals", default=",".join(SHORT), help="names, joined by commas")
    training.add_argument("--data", default=None, help="folder of the data set")
    training.add_argument("--out", required=True, help="folder of the results")
    training.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    training.add_argument("--bf16", action="store_true", help="autocast to bfloat16")
    numbers = {
        "ranks": 2, "every": 50, "steps": 600, "batch": 64, "seed": 0, "nice": 0,
        "evaluate_every": 50, "test_samples": 2000, "width": 128, "layers": 4, "heads": 4,
    }  # fmt: skip
    for name, default in numbers.items():
        training.add_argument(f"--{name.replace('_', '-')}", type=int, default=default)
    training.add_argument("--lr", type=float, default=1e-3, help="largest rate of AdamW")
    training.add_argument("--link", type=float, default=0, help="Mbit/s per rank; 0: no limit")
    printing = commands.add_parser("table", help="print a table of results")
    printing.set_defaults(function=table)
    printing.add_argument("file")
    args = parser.parse_args()
    args.function(args)


if __name__ == "__main__":
    main()
