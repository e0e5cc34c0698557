"""Files of a real federation, certificates, keys and scripts, and the proxy to its server.

Flower itself is not loaded here, and the command line loads this only when it needs it.
"""
