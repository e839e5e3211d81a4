"""The scaling table: quotients of what a compiled step reports."""

import json

import pytest

from benchmarks import scaling
from ckl_jax.parallel.collectives import Collective


def record(sent=100 * 10**9, work=275 * 10**12 // 2):
    one = Collective("all-gather", "fsdp", 16, 3, sent)
    report = {"collectives": [one.__dict__], "matmul_flops": work, "peak_bytes": 2**30}
    return {"report": report}


def test_times_are_work_over_half_of_the_rate_and_bytes_over_bandwidth():
    found = scaling.times(record())["TPU v4, ring over one torus axis"]
    assert found == {"flops_seconds": pytest.approx(1.0), "send_seconds": pytest.approx(1.0)}
    lines = scaling.table({"a": record()}).splitlines()
    assert len(lines) == 3 and len({line.count("|") for line in lines}) == 1
    assert "| a | 1.00 | 137.5 | 93.13 | all-gather, fsdp, 93.13 | 1000 + 1000 ms |" in lines[2]


def test_each_case_is_a_command_whose_batch_grows_with_the_chips():
    for name, case in scaling.cases().items():
        command = scaling.command_of(case)
        assert command.startswith(f"t5x precompile --topology={case['slice']} ")
        rows = 4 if case["model"] in scaling.DECODERS else 16
        assert f'--gin.BATCH_SIZE="{rows * case["chips"]}"' in command
        size = 1
        for n in case["mesh"].values():
            size *= n
        assert size == case["chips"], name


def test_stored_results_are_of_the_cases_that_there_are():
    stored = json.loads(scaling.RESULTS.read_text())
    cases = scaling.cases()
    for name, found in stored.items():
        assert found["command"] == scaling.command_of(cases[name]), name
        assert found["report"]["devices"] == cases[name]["chips"]
