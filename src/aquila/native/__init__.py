"""Inner loops in C, compiled when the package is installed."""

try:
    from aquila.native import accumulate, checksum, coder, dither, error_feedback, passes, sparse
except ImportError as error:
    raise ImportError(
        "aquila's C extensions are not built; install the package with a C compiler present: "
        "pip install -e ."
    ) from error

__all__ = ["accumulate", "checksum", "coder", "dither", "error_feedback", "passes", "sparse"]
