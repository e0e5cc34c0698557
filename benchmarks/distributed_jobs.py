"""Jobs of distributed.py: the training of one rival on all ranks, with a time limit."""

import copy
import json
import math
import multiprocessing
import os
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import torch
import torch._dynamo  # optimizers import it, which would take each rank seconds
import torch.distributed as dist
from distributed_rivals import Rival
from distributed_tasks import make_task
from machine import cpu_name

# torch then looks for GPUs without CUDA, which forked processes need
os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
MEGABIT = 1e6
SETTING = (
    "task", "ranks", "every", "steps", "batch", "lr", "seed", "device", "bf16", "width", "layers",
)  # fmt: skip
"""What the runs of one table share."""
POLL_SECONDS = 0.1


def learning_rate(step, args):
    """Return the rate of a step: a warm-up over 5 % of the steps, then half a cosine."""
    warmup = max(1, args.steps // 20)
    if step < warmup:
        return args.lr * (step + 1) / warmup
    return args.lr * (1 + math.cos(math.pi * (step - warmup) / max(1, args.steps - warmup))) / 2


def one_batch(task, model, step, args):
    """Compute the gradients of a batch; return the loss."""
    x, y = task.batch(step, args.batch)
    with torch.autocast(args.device, torch.bfloat16, enabled=args.bf16):
        outputs = model(x)
    loss = task.loss(outputs.float(), y)
    loss.backward()
    return loss


def wait_for_all(args):
    """Return the time at which all ranks have finished their work."""
    if args.device == "cuda":
        torch.cuda.synchronize()
    dist.barrier()
    return time.perf_counter()


def train(rank, name, args, folder):
    """Train one rival on one rank; rank 0 writes the curve and the machine."""
    torch.set_num_threads(1)
    torch.set_float32_matmul_precision("high")
    os.nice(args.nice)
    store = f"file://{folder}/store"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=args.ranks)
    task = make_task(args.task, rank, args.ranks, args)
    one_batch(task, copy.deepcopy(task.model), 0, args)  # loads kernels before the clock runs
    rival = Rival(name, task, args.every, args.link * MEGABIT)
    cuda = args.device == "cuda"
    optimizer = torch.optim.AdamW(
        task.model.parameters(), lr=args.lr, weight_decay=0.1, fused=cuda or None
    )
    curve, seconds = [], 0.0
    started = wait_for_all(args)
    for step in range(args.steps):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, args)
        optimizer.zero_grad()
        loss = one_batch(task, rival.model, step, args)
        optimizer.step()
        rival.after_batch(loss)
        if step + 1 == args.steps:
            rival.finish()
        if (step + 1) % args.evaluate_every == 0 or step + 1 == args.steps:
            seconds += wait_for_all(args) - started
            if rank == 0:
                with rival.evaluated_weights():
                    losses = task.evaluate(args.batch)
                point = (losses["test"], rival.bytes_sent, rival.link_bytes, seconds)
                curve.append((step + 1, *point, losses["validation"]))
            started = wait_for_all(args)
    if rank == 0:
        machine = torch.cuda.get_device_name() if cuda else f"{os.cpu_count()} cores, {cpu_name()}"
        result = {"machine": machine, "torch": torch.__version__, "curve": curve}
        Path(folder, "result.json").write_text(json.dumps(result))
    dist.barrier()
    # DDP ends its group while it holds Python's lock, which a thread of the group may wait for
    os._exit(0)


def identity(name, args):
    """Return what distinguishes a run from others."""
    return {"rival": name, "link": args.link, **{key: getattr(args, key) for key in SETTING}}


def results_file(args):
    """Return the file of the results of a task."""
    return Path(args.out) / f"{args.task}.jsonl"


def is_done(name, args):
    """Return whether the results have this run."""
    file, wanted = results_file(args), identity(name, args)
    lines = file.read_text().splitlines() if file.exists() else []
    return any(wanted.items() <= json.loads(line).items() for line in lines)


def start_method(device):
    """Return `fork`, so that ranks share the data sets of their parent, or else `spawn`.

    A forked process cannot use CUDA if its parent has, even if the parent has only looked for it.
    """
    if device == "cuda":
        probe = multiprocessing.get_context("fork").Process(
            target=torch.zeros, args=(1,), kwargs={"device": "cuda"}
        )
        probe.start()
        probe.join()
        if probe.exitcode != 0:
            print("forked processes cannot use CUDA; ranks start anew", flush=True)
            return "spawn"
    return "fork"


@dataclass
class Job:
    """The run of a rival on all ranks, each of which is a process.

    Args:
        name: Name of the rival.
        args: Settings of the run.
        limit: Seconds after which the run is stopped.
        alone: Whether no other job may run at the same time.
    """

    name: str
    args: object
    limit: float
    alone: bool = False
    ranks: list = field(default_factory=list)
    saved: bool = False

    def __str__(self):
        args = self.args
        return f"{args.task} {args.ranks} ranks every {args.every} {args.steps} steps {self.name}"

    def start(self, method):
        """Start the processes, by forking or by spawning."""
        self.folder = tempfile.TemporaryDirectory()
        self.started = time.monotonic()
        for rank in range(self.args.ranks):
            values = (rank, self.name, self.args, self.folder.name)
            context = multiprocessing.get_context(method)
            self.ranks.append(context.Process(target=train, args=values, daemon=True))
            self.ranks[-1].start()

    @property
    def seconds(self):
        return time.monotonic() - self.started

    def finished(self):
        """Return whether the job has ended; stop it if a rank has failed or the time is over."""
        codes = [rank.exitcode for rank in self.ranks]
        failed = any(code not in (None, 0) for code in codes)
        if failed or self.seconds > self.limit:
            self.stop("a rank failed" if failed else f"stopped after {self.limit:.0f} s")
            return True
        if None in codes:
            return False
        self._save()
        self.folder.cleanup()
        return True

    def stop(self, reason):
        """End the processes without a result."""
        for rank in self.ranks:
            rank.kill()
        for rank in self.ranks:
            rank.join()
        self.folder.cleanup()
        print(f"{self}: no result, {reason}", flush=True)

    def _save(self):
        result = json.loads(Path(self.folder.name, "result.json").read_text())
        file, entry = results_file(self.args), {**identity(self.name, self.args), **result}
        file.parent.mkdir(parents=True, exist_ok=True)
        self.saved = True
        with file.open("a") as lines:
            lines.write(json.dumps(entry) + "\n")
        _, loss, sent, _, seconds, _ = result["curve"][-1]
        rates = f"{seconds:.1f} s of training, {self.seconds:.1f} s in all"
        print(f"{self}: loss {loss:.4f}, {sent:,} bytes, {rates}", flush=True)


def run_jobs(jobs, cores, limit=math.inf):
    """Run jobs in their order, several at a time as the cores allow; return those without a result.

    Args:
        jobs: The jobs.
        cores: Number of ranks that run at the same time.
        limit: Seconds after which all jobs are stopped.
    """
    deadline = time.monotonic() + limit
    method = start_method(jobs[0].args.device) if jobs else ""
    waiting, running = list(jobs), []
    while (waiting or running) and time.monotonic() < deadline:
        running = [job for job in running if not job.finished()]
        while waiting and _may_start(waiting[0], running, cores):
            job = waiting.pop(0)
            job.limit = min(job.limit, deadline - time.monotonic())
            job.start(method)
            running.append(job)
        time.sleep(POLL_SECONDS)
    for job in running:
        job.stop("the time of all jobs is over")
    for job in waiting:
        print(f"{job}: not started, the time of all jobs is over", flush=True)
    return [job for job in jobs if not job.saved]


def _may_start(job, running, cores):
    if not running:
        return True
    busy = sum(other.args.ranks for other in running)
    exclusive = job.alone or any(other.alone for other in running)
    return not exclusive and busy + job.args.ranks <= cores
