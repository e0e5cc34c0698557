"""Inner loops in C, built when the package is installed."""
