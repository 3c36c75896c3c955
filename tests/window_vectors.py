"""Times, lengths and numbers of windows, on which the engine, Python senders and browsers must agree."""

DAY = 86_400
# Milliseconds, as browsers have them; seconds; k of [k·length, (k+1)·length), written down by hand.
WINDOWS = [
    (0, DAY, 0),
    (86_399_999, DAY, 0),
    (86_400_000, DAY, 1),
    (1_767_225_599_999, DAY, 20_453),  # the last millisecond of 2025
    (1_767_225_600_000, DAY, 20_454),
    (1_767_225_600_000, 3_600, 490_896),
    (1_767_225_600_000, 7 * DAY, 2_922),  # weeks begin on Thursdays, as 1970 did
    (1_767_225_599_999, 7 * DAY, 2_921),
    (1_767_225_600_000, 30 * DAY, 681),
    (1_769_471_999_999, 30 * DAY, 682),
    (1_709_251_199_999, DAY, 19_782),  # the last millisecond of 29 February 2024
    (1_709_251_200_000, DAY, 19_783),
    (4_102_444_800_000, DAY, 47_482),  # the year 2100
]
