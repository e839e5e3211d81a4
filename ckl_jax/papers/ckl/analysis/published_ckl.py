"""Scores that CKL's paper printed, to be shown beside ours: exact match in percent, and FUAR.

A row is by probe; "fuar" is as printed, None is "no gain". Of KILT each data set has a metric
of its own. Source: Jang et al. 2022, Tables 2, 3, 7, 8, 10, 11 and 13 (whose columns are F1, and
whose FUAR no formula gives: docs/fidelity.md).
"""

from collections.abc import Mapping

Row = Mapping[str, float | None]


def _rows(columns: str, table: str) -> dict[str, Row]:
    """{row: {column: number}} of lines such as "initial 24.17 1.62"; "no_gain" is None."""
    rows = {}
    for name, *numbers in map(str.split, table.strip().splitlines()):
        values = (None if number == "no_gain" else float(number) for number in numbers)
        rows[name] = dict(zip(columns.split(), values, strict=False))
    return rows


_MAIN = "invariant_lama updated_lama new_lama new_lama_easy fuar"
_SMALL = "invariant_lama new_lama_easy_p1 new_lama_easy_p2 fuar"
_RATES = "invariant_lama new_lama_easy_small fuar"
_GPT2 = "invariant_lama new_questions_easy fuar"
_KILT = "fever aidayago2 wned cweb trex structured_zeroshot nq hotpotqa triviaqa eli5 wow"

TABLE_2 = {
    "main": _rows(
        _MAIN,
        """
        initial       24.17   1.62   1.88  10.32
        vanilla       12.89  10.17   3.77  17.75   1.08
        recadam        13.2  12.55   4.02  17.85   0.84
        mix_review    13.92   6.49   2.89  14.86   1.74
        lora          16.58  12.77   4.52  19.56   0.55
        k_adapter_k2  19.59  12.34   5.03  18.75   0.33
        k_adapter_k3  19.76  12.66   4.02   19.0   0.33
        modular       20.29  12.66   4.65  19.24   0.28
        """,
    ),
}
_ALL, _FIRST = (
    "737M / 737M",
    {
        "lora": "403M / 738M",
        "k_adapter_k2": "427M / 762M",
        "k_adapter_k3": "440M / 775M",
        "modular": "438M / 773M",
    },
)
_WHOLE = {"initial": "0M / 737M", "vanilla": _ALL, "recadam": _ALL, "mix_review": _ALL}
_SECOND = {
    "lora": "404M / 740M",
    "k_adapter_k2": "427M / 788M",
    "k_adapter_k3": "440M / 813M",
    "modular": "438M / 809M",
}
# Trainable and all parameters, by scenario and row (Tables 2 and 3).
PARAMETERS = dict.fromkeys(("main", "small", "p1"), _WHOLE | _FIRST) | {"p1_p2": _WHOLE | _SECOND}
TABLE_3 = {
    "small": _rows(
        _SMALL,
        """
        initial       24.17   8.69   9.45
        vanilla       11.86  17.77  16.42   1.53
        recadam       11.85  16.46  13.93   2.01
        mix_review    14.36  14.18  13.93   1.97
        lora          14.26   20.6   19.9   0.87
        k_adapter_k2  18.16  18.34  16.42   0.72
        k_adapter_k3  17.12  20.98  20.39   0.61
        modular        16.4  19.47   19.9   0.73
        """,
    ),
    "p1": _rows(
        _SMALL,
        """
        initial       24.17   8.69   9.45
        vanilla        9.68   20.6  11.44   1.22
        recadam       11.78  20.42  11.94   1.06
        mix_review    16.13  15.88  11.94   1.12
        lora          14.75  20.79  13.93   0.78
        k_adapter_k2  19.11   20.6  10.95   0.42
        k_adapter_k3  19.08  18.15  10.94   0.54
        modular       17.08   18.9  11.94   0.69
        """,
    ),
    "p1_p2": _rows(
        _SMALL,
        """
        initial       24.17   8.69   9.45
        vanilla         9.4  14.37  23.38   1.06
        recadam        7.25  14.56   20.9   1.48
        mix_review     13.2   17.2  16.92   1.47
        lora          13.25  16.07  22.39   0.84
        k_adapter_k2  15.78  16.07  23.38    0.6
        k_adapter_k3  15.47  15.31   20.9   0.76
        modular       14.66  15.31   20.4   0.87
        """,
    ),
}
TABLE_7 = {
    "rates": _rows(
        _RATES,
        """
        initial              24.17    8.9
        vanilla-1e-05        19.15  13.56   1.08
        vanilla-0.0001       17.45  15.21   1.06
        vanilla-0.0005       14.88  15.89   1.33
        vanilla-0.001        11.19  18.77   1.32
        k_adapter_k2-0.0001  19.93  14.93    0.7
        k_adapter_k2-0.001   16.46  19.59   0.72
        """,
    ),
}
TABLE_8 = {
    "kilt": _rows(
        _KILT,
        """
        initial       80.39  81.44  50.47  48.92  44.64    4.4  25.63  17.64  28.38  13.46  13.92
        vanilla       78.02  81.19  48.17  46.46  44.08   2.04  24.93  14.36  26.51  13.38  13.07
        recadam       77.83  81.44  49.12  47.01  43.04   2.58  24.65  14.86  25.99  13.71  12.69
        mix_review    77.17  80.77  49.38  46.22  44.08   2.47  25.07  14.57  26.36  13.57  12.73
        lora          79.89  81.44  48.82  47.29  45.68   3.01  25.49  16.71  28.23  13.42   13.6
        k_adapter_k2  80.35  80.94  48.91  46.65  45.52   3.33   26.2  16.57  26.89  13.15  12.94
        k_adapter_k3  80.31  80.52  47.09  46.26   45.6   3.12  24.79  16.57  25.62  13.82  13.42
        modular       80.54  82.44  48.44  44.81  48.16   3.44  24.51  18.43  28.31  13.72  14.03
        """,
    ),
}
TABLE_10 = {
    "gpt2_1e-4": _rows(
        _GPT2,
        """
        initial       38.11    4.3
        vanilla       35.88   5.79   1.58
        recadam        35.5   5.79   1.84
        mix_review    38.93   5.57    0.0
        lora          37.99   6.23   0.06
        k_adapter_k2  37.85   6.34   0.13
        k_adapter_k3  38.03   5.79   0.06
        """,
    ),
}
TABLE_11 = {
    "gpt2_1e-3": _rows(
        _GPT2,
        """
        initial       38.11   4.37
        vanilla       23.03   1.64 no_gain
        recadam       25.38   2.73 no_gain
        mix_review    32.07   1.64 no_gain
        lora          34.52   5.46   3.29
        k_adapter_k2  33.67   6.01   2.71
        k_adapter_k3  31.75   7.65   1.94
        """,
    ),
}
TABLE_13 = {
    "main": _rows(
        _MAIN,
        """
        initial       24.88   2.62   3.19  14.49
        vanilla       13.11  11.89   5.84  22.53   0.68
        recadam       13.39  14.33   6.15  22.68   0.57
        mix_review    14.09   8.11    4.8  18.89    1.1
        lora          17.04   14.5   7.45  24.59   0.36
        k_adapter_k2  19.88  13.67   7.43  24.04   0.22
        k_adapter_k3  19.91  14.31   6.55  23.33   0.21
        modular       21.35  12.78   6.94  24.42   0.17
        """,
    ),
}
# Answers of each type in percent (Table 5), and the probes of Figure 8b on either side.
ANSWER_TYPES = {
    "updated_lama": dict(
        person=61.47, organization=8.3, geographical=6.6, number=5.19, date=2.4, other=16.04
    ),
    "new_lama": dict(
        person=59.7, organization=10.2, number=7.6, date=5.3, geographical=4.8, other=12.4
    ),
    "new_lama_easy": dict(
        person=48.5,
        organization=13.0,
        geographical=9.8,
        date=5.5,
        nationality=3.4,
        number=2.5,
        other=17.3,
    ),
    "invariant_lama": dict(
        geographical=54.0,
        language=14.9,
        nationality=7.2,
        person=6.3,
        location=5.7,
        organization=5.3,
        other=6.6,
    ),
}
SHARED_PERSONS = 67
