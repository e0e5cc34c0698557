"""Binary units of size, in bytes."""

MIB = 2**20
GIB = 2**30
