"""A rank for torchrun: it saves its state after each round, and rank 1 kills itself once."""

import os
import signal
import sys
from pathlib import Path

import torch
import torch.distributed as dist

sys.path.insert(0, str(Path(__file__).parents[1]))

from aquila.distributed import Exchange, Outer
from helpers.rank_training import make_model, train, weights

STEPS = 15


def main(folder: Path, kill_at: int) -> None:
    dist.init_process_group("gloo")
    rank, attempt = dist.get_rank(), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    model = make_model()
    outer = Outer(
        model, "aquila_topk", every=3, server_optimizer="nesterov", server_lr=0.7,
        exchange=Exchange(timeout=30),
    )  # fmt: skip
    path, done = folder / f"state-{rank}.pt", 0
    if path.exists():
        state = torch.load(path, weights_only=True)
        model.load_state_dict(state["model"])
        outer.load_state_dict(state["outer"])
        done = state["done"]
    for step in range(done, STEPS):
        if attempt == 0 and rank == 1 and step == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        before = outer.round
        train(outer, model, 1, first=step)
        if outer.round > before:
            state = {"model": model.state_dict(), "outer": outer.state_dict(), "done": step + 1}
            torch.save(state, path)
    torch.save((weights(model), attempt), folder / f"final-{rank}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
