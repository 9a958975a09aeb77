"""Formatting and parsing of numbers."""

import math
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from chainer_profile.basics import units
from chainer_profile.basics.errors import UsageError
from tests.refusing import refusal

NAN = math.nan

#: Functions that format a number, with arguments and texts.
FORMATTED = {
    units.format_duration: {
        **{1.0: "1.000 s", 0.005021: "5.021 ms", 1e-3: "1.000 ms", 0.9999e-3: "999.9 us"},
        **{999.94e-6: "999.9 us", 999.96e-6: "1.000 ms", 999.96e-3: "1.000 s"},
        **{9.99996e-3: "10.00 ms", 4.1e-7: "410.0 ns"},
        **{3e-10: "0.3000 ns", 12345.6: "12,346 s", -0.0025: "-2.500 ms", 0.0: "0 s"},
        **{NAN: "-", None: "-"},
    },
    units.roughly: {
        **{0.4: "0 s", 89: "89 s", 100: "2 min", 3600: "60 min", 12_000: "3 h 20 min"},
    },
    units.format_difference: {0.0041: "+4.100 ms", -1.2: "-1.200 s", 0.0: "0 s"},
    units.format_of_limit: {
        (88.4, 100): "88 of the 100 s",
        (29, 90): "29 of the 90 s",
        (171, 180): "2.9 of the 3 min",
        (60, 60): "1.0 of the 1 min",
        (0.4, 2.5): "0 of the 2.5 s",
        (3000, 3600): "50.0 of the 60 min",
    },
    units.format_significant: {
        **{0: "0", 0.0004: "0.0004000", 1: "1.000", 9.9996: "10.00", 149.3: "149.3"},
        **{999.96: "1,000", 1234567.8: "1,234,568", -9.9996: "-10.00", math.inf: "-", NAN: "-"},
    },
    units.format_percent: {0.1234: "12.3 %", (0.1234, 0): "12 %", None: "-", NAN: "-"},
    units.format_bare_percent: {0.1234: "12.3", NAN: "-"},
    units.format_change: {0.0077: "+0.8 %", -0.0077: "-0.8 %", NAN: "-"},
    units.format_exact: {
        **{(0.069, 6): "0.069", (0.123456789, 6): "0.123457", (1234567.8, 4): "1234568"},
        **{(-12.0, 3): "-12", (NAN, 6): "", (math.inf, 6): "inf"},
    },
    units.format_ms: {0.0003871: "0.3871", 1.5: "1500.0000", NAN: "-", None: "-"},
    units.format_interval: {(0.00099, 0.00101): "0.9900 to 1.010 ms", (NAN, 1.0): "-"},
    units.format_count: {10_000: "10,000", 27_223.1: "27,223", 33.33: "33.3", 0.0238: "0.024"},
    units.plural: {(1, "layer"): "1 layer", (10_000, "trial"): "10,000 trials"},
    units.format_factor: {1.294: "1.29x", 99.994: "99.99x", 100: "100x"},
    units.format_nbytes: {
        **{None: "-", 0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 1536: "1.5 KiB"},
        **{25_232_932_864: "23.5 GiB", 5 << 50: "5120.0 TiB"},
    },
    units.format_shape: {((1, 3, 32, 32),): "1x3x32x32", ((),): "scalar"},
    units.format_shapes: {(((1, 3), (), (5,)),): "1x3 scalar 5", ((),): ""},
    units.format_giga: {225.18e9: "225.2", 12_345.6e9: "12,346", 1e6: "0.001000", NAN: "-"},
}
#: Functions that parse a text, with texts and numbers.
PARSED = {
    units.parse_duration: {
        "0.36ms": 0.36e-3,
        **dict.fromkeys(("360 us", "360µs", "360\u03bcs"), 360e-6),
        **{"1e-3s": 1e-3, "  2s ": 2.0, "5E2ns": 500e-9, ".5s": 0.5, "5.s": 5.0},
    },
    units.parse_percent: {"5%": 0.05, "100%": 1.0, " 2.5 % ": 0.025, "2": 0.02},
}


def test_numbers_are_formatted_and_parsed():
    for function, texts in FORMATTED.items():
        formatted = {
            args: function(*args if isinstance(args, tuple) else (args,)) for args in texts
        }
        assert formatted == texts, function
    for parse, values in PARSED.items():
        assert {text: parse(text) for text in values} == pytest.approx(values, rel=1e-15)


@given(st.floats(1e-12, 1e6))
@example(999.96e-6)
@example(1 - 1e-9)
def test_durations_have_four_digits_and_can_be_parsed(seconds):
    text = units.format_duration(seconds).replace(",", "")
    assert units.parse_duration(text) == pytest.approx(seconds, rel=0.5001e-3)
    if 1e-9 <= seconds <= 999.9:
        assert 1 <= float(text.split()[0]) < 1000
        assert len(re.sub(r"[^0-9]", "", text)) == 4


@given(st.floats(1e-9, 1e12), st.integers(1, 9))
def test_significant_digits_are_exact_and_keep_the_integer_part(value, digits):
    text = units.format_significant(value, digits).replace(",", "")
    assert float(text) == pytest.approx(value, rel=0.5001 * 10 ** (1 - digits))
    before_point = text.split(".")[0].lstrip("0")
    assert len(text.replace(".", "").lstrip("0")) == max(digits, len(before_point))


INVALID = ["", " ", ".", "-1", "1.2.3", "nan", "inf", "1,5", "0x10", "1e", "--5", "x\ny", "1 2"]
#: Functions that parse a text, their advice, and texts that they refuse.
REFUSED = {
    units.parse_duration: (
        "give a number with s, ms, us or ns, such as 0.36ms",
        [
            "5",
            "5 m",
            "5 min",
            "5 MS",
            "0ms",
            "1e999s",
            "1e-999s",
            *(f"{text}ms" for text in INVALID),
        ],
    ),
    units.parse_percent: (
        "give a number above 0 and up to 100, such as 5%",
        ["0%", "100.1%", "5%%", "5ms", "1e9%", *INVALID],
    ),
}


def test_invalid_text_is_refused_with_advice():
    for parse, (advice, texts) in REFUSED.items():
        for text in texts:
            message = refusal(parse, text, error=UsageError)
            assert repr(text) in message
            assert advice in message
