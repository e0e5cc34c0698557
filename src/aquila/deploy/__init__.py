"""The files of a real federation (certificates, keys, scripts, units), and its server's proxy.

This package does not import Flower. The command line imports it only for `aquila deploy`.
"""
