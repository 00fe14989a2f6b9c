"""Inputs that Hypothesis puts together: right in form, odd in what they say."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from fuzz_arguments import options
from fuzz_mutate import ODD
from fuzz_run import limited
from fuzz_targets import TARGETS, run
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

TIMES = int(os.environ.get("FUZZ_TIMES", "0"))
"""How many times the usual number of examples to try, new ones each time; 0: the usual ones."""


def some(examples: int) -> settings:
    return settings(
        max_examples=examples * max(1, TIMES),
        derandomize=not TIMES,
        suppress_health_check=list(HealthCheck),
    )


TEXTS = st.text(st.characters(), max_size=12) | st.sampled_from(
    [one.decode("utf-8", "surrogateescape") for one in ODD if len(one) < 400]
)
NUMBERS = (
    st.integers()
    | st.floats()
    | st.sampled_from([10**400, -(2**63), 2**64, 1e308, 5e-324, float("nan"), float("inf")])
)
LEAVES = st.none() | st.booleans() | NUMBERS | TEXTS
TREES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)
NAMES = st.sampled_from(["epochs", "lr", "batch_size", "model", "dataset", "max_steps", "train"])


def check(name: str, data: str, folder: Path) -> None:
    """Run a target; surrogates of a text become bytes that are not UTF-8."""
    data = data.encode("utf-8", "surrogatepass")
    with limited():
        run(TARGETS[name], data, folder / "case")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


@some(12)
@given(config=st.dictionaries(NAMES | TEXTS, TREES, max_size=6))
def test_configurations(config: dict[str, Any], folder: Path) -> None:
    check("json", json.dumps(config), folder)
    check("yaml", yaml.safe_dump(config), folder)


_SHELL = r"""python train.py torchrun srun -m bash -c cd && | ; if fi then for do done $( ) ` $(( ))
<<EOF EOF a=( case esac --lr --epochs=3 env sbatch --gres=gpu:8 {1..9} ${x:-y} " '"""
WORDS = st.sampled_from(re.findall(r"\S+", _SHELL))


@some(12)
@given(words=st.lists(WORDS | TEXTS | NUMBERS.map(lambda n: f"{n}"[:500]), max_size=25))
def test_commands(words: list[str], folder: Path) -> None:
    check("command", " ".join(words), folder)


RECORDS = st.fixed_dictionaries(
    {"job_id": TEXTS | NUMBERS},
    optional=dict.fromkeys(
        ("name", "user", "state", "submit_time", "start_time", "duration_s", "gpu_util"), LEAVES
    )
    | {
        "state": st.sampled_from(["COMPLETED", "FAILED", "x"]),
        "launch": st.dictionaries(st.sampled_from(["gpus", "nodes", "time_limit_s"]), LEAVES),
        "metadata": st.fixed_dictionaries({"training_config": st.dictionaries(NAMES, TREES)}),
        "throughput": st.dictionaries(TEXTS, NUMBERS, max_size=2),
    },
)


@some(12)
@given(records=st.lists(RECORDS, min_size=1, max_size=4))
def test_records(records: list[dict[str, Any]], folder: Path) -> None:
    check("history", "".join(json.dumps(one) + "\n" for one in records), folder)


CELLS = st.one_of(
    st.integers(0, 500).map(str),
    st.floats(0, 1e5).map(repr),
    st.sampled_from(["", "0", "1e308", "-1", "nan", "inf", "5e-324", "1e12", "9" * 500]),
)
ROWS = st.tuples(CELLS, CELLS, st.sampled_from(["1", "2", "4", "12", "0", "1e9", "0.5"]), CELLS)


@some(5)
@given(rows=st.lists(ROWS, min_size=1, max_size=8))
def test_traces(rows: list[tuple[str, ...]], folder: Path) -> None:
    head = "job_id,submit_s,duration_s,gpus,gpu_util_pct\n"
    body = "".join(f"j{n},{','.join(row)}\n" for n, row in enumerate(rows))
    check("trace", head + body, folder)


@some(40)
@given(option=st.sampled_from(options()), value=TEXTS | NUMBERS.map(lambda n: f"{n}"[:500]))
def test_options(option: tuple[tuple[str, ...], str], value: str, folder: Path) -> None:
    given, name = option
    check("arguments", "\n".join([*given, f"{name}={value}".replace("\n", " ")]), folder)
