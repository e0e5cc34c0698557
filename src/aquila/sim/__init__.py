"""The embedded simulator: rounds, oracles, links, records and checkpoints."""
