"""Simulators of benchmarks/simulator.py: each file has one `run(workload, log)`.

`run` does the work, calls `log.end_round(loss)` after each round, and may return more numbers.
"""
