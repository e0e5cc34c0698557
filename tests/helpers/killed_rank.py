"""A rank for torchrun: it saves its state after each exchange, and rank 1 kills itself once."""

import os
import signal
import sys
from pathlib import Path

import torch
import torch.distributed as dist

sys.path.insert(0, str(Path(__file__).parents[1]))

from aquila.distributed import Exchange, Outer
from helpers.hook_training import descend, wrap
from helpers.rank_training import make_model, train, weights

STEPS = 15


def make_run(kind, model):
    """Return what has a state, and a function that takes a step and says whether to save."""
    exchange = Exchange(timeout=30)
    if kind == "hook":
        wrapped, state = wrap("aquila_topk", model, bucket_cap_mb=1.0, exchange=exchange)

        def take_step(step):
            descend(wrapped, step, 1)
            return True

        return state, take_step
    options = {"server_optimizer": "nesterov", "server_lr": 0.7}
    outer = Outer(model, "aquila_topk", every=3, exchange=exchange, **options)

    def take_step(step):
        before = outer.round
        train(outer, model, 1, first=step)
        return outer.round > before

    return outer, take_step


def main(folder: Path, kind: str, kill_at: int) -> None:
    dist.init_process_group("gloo")
    rank, attempt = dist.get_rank(), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    path, saved = folder / f"state-{rank}.pt", {}
    model = make_model()
    if path.exists():
        saved = torch.load(path, weights_only=True)
        model.load_state_dict(saved["model"])
    run, take_step = make_run(kind, model)
    if saved:
        run.load_state_dict(saved["run"])
    for step in range(saved.get("done", 0), STEPS):
        if attempt == 0 and rank == 1 and step == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        if take_step(step):
            state = {"model": model.state_dict(), "run": run.state_dict(), "done": step + 1}
            torch.save(state, path)
            dist.barrier()  # else a rank may be killed before it has saved the same round
    torch.save((weights(model), attempt), folder / f"final-{rank}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
