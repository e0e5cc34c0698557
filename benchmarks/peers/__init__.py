"""Simulators of benchmarks/simulator.py: each file has one `run(workload, log)`.

It does the work, calls `log.end_round(loss)` after each round, and may return further numbers.
"""
