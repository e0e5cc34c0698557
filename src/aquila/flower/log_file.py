"""The log of a run in its folder, one JSON object per line.

Flower keeps what a server app logs as text, and only as long as the SuperLink's database.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from logging import ERROR, INFO, LogRecord, getLogger
from logging.handlers import RotatingFileHandler
from pathlib import Path

from aquila.deploy.log_format import JsonFormatter
from aquila.flower.transport import one_line
from aquila.sim.rollback import LOG_FILE

LOGGERS = ("aquila", "flwr.aquila")
MAX_LOG_BYTES = 2**24
"""Size above which the file is renamed, and a new one begun. One old file is kept."""


@contextmanager
def log_file(folder: Path, max_bytes: int = MAX_LOG_BYTES) -> Iterator[None]:
    """Append all log lines of AQUILA to a file in the folder, and an error that ends the block."""
    handler = RotatingFileHandler(
        folder / LOG_FILE, maxBytes=max_bytes, backupCount=1, encoding="utf-8", delay=True
    )
    handler.setFormatter(JsonFormatter())
    handler.setLevel(INFO)
    for name in LOGGERS:
        getLogger(name).addHandler(handler)
    try:
        yield
    except Exception as error:
        text = "the run ends: %s"
        handler.handle(
            LogRecord(LOGGERS[1], ERROR, __file__, 0, text, (one_line(error),), exc_info=None)
        )
        raise
    finally:
        for name in LOGGERS:
            getLogger(name).removeHandler(handler)
        handler.close()
