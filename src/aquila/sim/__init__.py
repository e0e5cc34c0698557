"""The simulator: settings, problems, devices, rounds, records and checkpoints."""
