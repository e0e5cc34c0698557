"""The coders that benchmarks/codec.py compares: each encodes codes to bytes, and decodes them."""

import importlib
import importlib.util

import numpy as np
from code_streams import code_counts

from aquila.core.packet import Codes, Packet
from aquila.core.wire import pack, unpack


def installed(module):
    return importlib.util.find_spec(module) is not None


def import_if_installed(module):
    """Return a module, or None if it is not installed."""
    return importlib.import_module(module) if installed(module) else None


constriction, zstandard, blosc2 = map(import_if_installed, ("constriction", "zstandard", "blosc2"))


class AquilaFrame:
    """A frame of AQUILA."""

    name = "aquila frame"

    def __init__(self, codes, device):
        array, low, step = (part.to(device) for part in (codes.codes, codes.low, codes.step))
        self.packet = Packet(0, Codes(array, codes.bits, low, step, codes.bucket))
        self.dimension, self.device = codes.dimension, device

    def encode(self):
        return pack(self.packet)

    def decode(self, frame):
        return unpack(frame, self.dimension, self.device).vector.codes


class Constriction:
    """Asymmetric numeral systems of constriction, with a model fitted to the codes."""

    name = "constriction"

    def __init__(self, codes):
        self.codes = codes.codes.numpy()
        counts = code_counts(codes.codes)
        counts = np.pad(counts, (0, max(0, 2 - len(counts))))  # it needs at least two symbols
        frequencies = counts / counts.sum()
        self.model = constriction.stream.model.Categorical(frequencies, perfect=False)

    def encode(self):
        coder = constriction.stream.stack.AnsCoder()
        coder.encode_reverse(self.codes.astype(np.int32), self.model)
        return coder.get_compressed()

    def decode(self, words):
        coder = constriction.stream.stack.AnsCoder(words)
        return coder.decode(self.model, len(self.codes)).astype(self.codes.dtype)


class Zstd:
    """Zstandard at its fastest regular level."""

    name = "zstd, level 1"

    def __init__(self, codes):
        self.codes = codes.codes.numpy()

    def encode(self):
        return zstandard.ZstdCompressor(level=1).compress(self.codes)

    def decode(self, data):
        return np.frombuffer(zstandard.ZstdDecompressor().decompress(data), self.codes.dtype)


class Blosc:
    """Blosc2 with bit shuffling and Zstandard, at the default level."""

    name = "blosc2, bitshuffle"

    def __init__(self, codes):
        self.codes = codes.codes.numpy()

    def encode(self):
        return blosc2.compress2(
            self.codes,
            typesize=self.codes.itemsize,
            codec=blosc2.Codec.ZSTD,
            filters=[blosc2.Filter.BITSHUFFLE],
            nthreads=1,
        )

    def decode(self, data):
        return np.frombuffer(blosc2.decompress2(data, nthreads=1), self.codes.dtype)


PEERS = {"constriction": Constriction, "zstandard": Zstd, "blosc2": Blosc}


def available_peers(device):
    """Return the peers to measure, and a line that names those left out."""
    if device == "cuda":
        return [], "Peers are left out because they do not read GPU memory."
    missing = [module for module in PEERS if not installed(module)]
    line = f"Left out, not installed: {', '.join(missing)}." if missing else ""
    return [peer for module, peer in PEERS.items() if module not in missing], line
