"""Files of a real federation, certificates, keys and scripts, and the gate to its server.

Flower itself is not loaded here, and the command line loads this only when it needs it.
"""
