"""The simulators that benchmarks/simulator.py compares."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Simulator:
    """A simulator: its file in benchmarks/peers, and the modules that must be installed.

    `same_losses`: its losses must equal those of the plain loop.
    """

    module: str
    label: str
    needs: tuple[str, ...] = ()
    same_losses: bool = True


PLAIN = Simulator("plain", "plain PyTorch")
OURS = Simulator("ours:aquila", "aquila", same_losses=False)
OURS_FEDSGD = Simulator("ours:fedsgd", "aquila, method fedsgd")
PEERS = {
    "flower": Simulator("flower", "Flower", ("flwr", "ray")),
    "pfl": Simulator("pfl", "pfl", ("pfl",)),
    "fedlab": Simulator("fedlab", "FedLab", ("fedlab",)),
}
