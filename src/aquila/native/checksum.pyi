def crc32(data: bytes | bytearray | memoryview, start: int = 0, /) -> int:
    """Return the same number as zlib.crc32, faster."""
