"""What TemporalWiki printed (EMNLP 2022): its tables and figures, numbers by model and month."""

TITLES = {
    "table1": "articles and tokens of snapshots and diffsets",
    "table2": "facts that are left after alignment and filters",
    "table3": "perplexity of unchanged and changed facts, and the time of an update",
    "table4": "changed facts with the new text that states them",
    "table5": "perplexity of facts after light-tuning",
    "table6": "F1 after light-tuning",
    "table7": "facts to tune on",
    "figure2": "perplexity of proper nouns relative to Initial, in new text and in the rest",
    "figure3": "average perplexity of unchanged and changed facts",
    "figure4": "temporal misalignment: each model on the changed facts of each interval",
    "figure5": "new text that updates information, and that adds some",
    "figure6": "types of subjects and objects",
    "figure7": "relations",
}
MONTHS = ("0809", "0910", "1011", "1112")
METHODS = ("Initial", "Full", "Diff", "RecAdam", "Mix-Review", "LoRA", "K-Adapter")

_TABLE_3 = """
386.16 364.82 375.49 356.66 416.32 386.49 350.54 420.52 385.53 357.37 451.74 404.56
379.43 360.46 369.95 388.85 437.15 413.00 337.34 383.06 360.20 381.11 435.47 408.29
409.31 284.34 346.83 409.86 336.55 373.21 465.20 367.72 416.46 391.77 365.07 378.42
358.10 253.07 305.59 376.12 306.64 341.38 439.14 338.17 388.66 400.56 356.60 378.58
337.59 274.91 306.25 394.20 381.21 387.71 375.85 369.50 372.68 313.94 323.49 318.72
386.52 332.98 359.75 359.54 371.03 365.29 381.80 391.66 386.73 361.42 408.19 384.81
340.47 297.39 318.93 326.53 338.16 332.35 325.11 332.61 328.86 333.53 374.67 354.10
"""
_TABLE_5 = """
116.99 142.58 108.89 167.82 106.14 172.18 114.64 177.02
124.37 145.89 112.51 172.70 105.09 164.59 118.54 164.17
120.52 116.44 125.80 142.82 132.83 156.60 144.61 164.34
122.58 118.14 125.90 143.65 137.15 148.24 144.76 159.52
116.53 121.57 119.39 154.72 119.16 157.59 118.64 145.29
123.62 130.41 115.54 156.07 115.26 165.51 122.11 169.59
115.93 134.46 116.27 154.11 110.17 158.21 117.22 167.44
"""
_TABLE_6 = """
6.98 3.19 7.26 3.35 7.27 2.74 6.84 2.82
4.68 2.45 5.62 3.06 7.12 2.25 4.28 2.30
7.51 4.38 6.91 4.46 5.24 2.65 5.45 4.38
5.74 3.79 6.31 3.86 4.47 2.43 5.09 3.68
7.12 3.31 6.16 3.56 6.63 2.08 6.84 3.67
7.36 4.48 7.23 3.89 7.19 3.87 6.82 3.81
7.54 3.99 7.34 3.73 7.38 3.91 6.87 3.30
"""


def _parse(text, width):
    """{method: {month: its numbers, as text}}."""
    rows = [line.split() for line in text.strip().splitlines()]
    return {
        method: {m: row[width * i : width * (i + 1)] for i, m in enumerate(MONTHS)}
        for method, row in zip(METHODS, rows, strict=True)
    }


TABLE_3 = _parse(_TABLE_3, 3)  # perplexities: Unchanged, Changed, Avg
TABLE_5 = _parse(_TABLE_5, 2)  # after light-tuning: Unchanged, Changed
TABLE_6 = _parse(_TABLE_6, 2)  # F1 after light-tuning
TABLE_1 = {  # articles and tokens, by the month of a snapshot or the two of a diffset
    "08": ("6.3M", "4.6B"),
    "0809": ("306.4K", "347.29M"),
    "09": ("6.3M", "4.6B"),
    "0910": ("299.2K", "347.96M"),
    "10": ("6.3M", "4.7B"),
    "1011": ("301.1K", "346.45M"),
    "11": ("6.3M", "4.6B"),
    "1112": ("328.9K", "376.09M"),
    "12": ("6.3M", "4.7B"),
}
TABLE_2 = {  # facts that the comparison finds, those that are aligned, and those that pass filters
    "0809": {"unchanged": (514_017, 10_133, 6_935), "changed": (1_209_272, 2_329, 1_776)},
    "0910": {"unchanged": (544_708, 10_625, 7_340), "changed": (1_196_806, 2_621, 1_982)},
    "1011": {"unchanged": (460_228, 10_544, 7_313), "changed": (1_572_778, 1_742, 1_358)},
    "1112": {"unchanged": (463_623, 10_580, 7_293), "changed": (1_653_709, 3_472, 1_951)},
}
# Facts to tune on, their relations, facts of the most frequent one, subjects.
TABLE_7 = {"unchanged": (500, 102, 58, 499), "changed": (500, 140, 31, 500)}
# Of an update (Table 3).
HOURS = {
    "Full": 24.0,
    "Diff": 2.5,
    "RecAdam": 4.0,
    "Mix-Review": 6.0,
    "LoRA": 2.0,
    "K-Adapter": 2.0,
}
