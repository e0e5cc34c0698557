"""Vectors, packets, quantizers, frames, fleets and the protocol every method follows."""
