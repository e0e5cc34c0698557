from aquila.runtime.fingerprint import fingerprint_differences


def test_equal_fingerprints_have_no_differences():
    assert fingerprint_differences("seed 0\nlink none", "seed 0\nlink none") == []


def test_changed_line_is_named_with_its_saved_value():
    assert fingerprint_differences("method a\nseed 0", "method a\nseed 5") == [
        "seed 5 (saved: seed 0)"
    ]


def test_line_that_only_one_has_does_not_shift_the_others():
    short, long = "seed 0\nslices all", "seed 0\ndownlink_error 0.1\nslices all"
    assert fingerprint_differences(short, long) == ["downlink_error 0.1 (saved: none)"]
    assert fingerprint_differences(long, short) == ["no downlink_error (saved: downlink_error 0.1)"]
