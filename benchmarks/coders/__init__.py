"""Parts of benchmarks/codec.py: the coders, the measurements, the goals and the output."""
