"""Vectors, packets, quantizers, frames, fleets and the protocol that every method implements."""
