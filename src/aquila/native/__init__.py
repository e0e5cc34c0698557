"""Inner loops in C, built when the package is installed."""

try:
    from aquila.native import checksum, coder, passes, sparse
except ImportError as error:
    raise ImportError(
        "the parts of aquila in C have not been built; install the package, which needs a C "
        "compiler: pip install -e ."
    ) from error

__all__ = ["checksum", "coder", "passes", "sparse"]
