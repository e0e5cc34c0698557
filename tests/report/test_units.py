"""Numbers with the unit that suits their size."""

import pytest

from aquila.report.units import SECOND_UNITS, format_byte_tick, format_bytes, format_quantity


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"), (1, "1 B"), (999, "999 B"), (1000, "1.00 KB"), (87_310, "87.3 KB"),
        (999_400, "999 KB"), (999_600, "1.00 MB"), (1_240_000, "1.24 MB"), (23_069_000, "23.1 MB"),
        (89.4e9, "89.4 GB"), (2e12, "2.00 TB"), (5e15, "5,000 TB"), (12.5, "12.5 B"),
    ],
)  # fmt: skip
def test_bytes_have_three_digits_and_a_unit(count, text):
    assert format_bytes(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.0123, "0.0123 s"),
        (59.96, "60 s"),
        (497.7, "8.29 min"),
        (19_800, "5.50 h"),
        (2e5, "2.31 days"),
    ],
)
def test_time_has_a_unit(seconds, text):
    assert format_quantity(seconds, SECOND_UNITS) == text


def test_ticks_have_no_trailing_zeros():
    assert [format_byte_tick(x) for x in (5, 2e4, 1e6, 1.5e9)] == ["5 B", "20 KB", "1 MB", "1.5 GB"]
