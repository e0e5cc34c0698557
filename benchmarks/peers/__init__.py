"""Contestants of benchmarks/simulator.py: each file has one `run(work, diary)`.

It does the work, calls `diary.end_round(loss)` after each round, and may return further numbers.
"""
