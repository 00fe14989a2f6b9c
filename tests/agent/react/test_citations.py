"""What a line proves: numbers under their names, formulas, units, defaults, and absence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from schedmate.agent.react.citations import Citations, Finding, evaluate_formula
from schedmate.agent.react.extractor import same_value
from schedmate.agent.react.sources import files_of_job
from schedmate.jobs import Evidence, WorkloadMetadata
from schedmate.tools import RepoFiles

ITERS, UNIT = "training_config.iters", "training_config.iter_type"
TRAIN = """\
from transformers import TrainingArguments
from data import corpus
budget = {"amount": 6.5e12, "seed": 1000, "lr": 3000}
schedule(30_000, share=0.25, every=500)
loader = corpus("wmt14_" + pair, num_workers=0)
config = load("configs/wide_resnet.json")
print(budget, loader, config, TrainingArguments)
unused_steps = 424242
def never_called():
    steps = 777
    return steps
if False:
    steps = 888
for step in count():
    if step > 999:
        break
        steps = 555
batch, seq = 256, 2048
run(batch, seq, epochs=12)
while True:
    run(batch, seq)
"""


@pytest.fixture
def citations(tmp_path: Path) -> Citations:
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "sizes.yaml").write_text(
        "total_tokens: 1_000_000\nwarmup_steps: 400\nvalidation: null\n"
    )
    known = {
        "training_config": {"global_batch_size": 50, "seq_length": 100},
        "evidence": {
            f"training_config.{name}": {"value": value, "source": "config", "file": "c", "line": 1}
            for name, value in (("global_batch_size", 50), ("seq_length", 100))
        },
    }
    return Citations(
        RepoFiles(tmp_path),
        {"train.py", "sizes.yaml"},
        "python train.py --config sizes.yaml -e 40",
        WorkloadMetadata.model_validate(known),
        "train.py",
    )


def check(citations: Citations, field: str, value: Any, line: int, **more: Any) -> Any:
    more.setdefault("file", "train.py")
    return citations.check(Finding(field=field, value=value, line=line, **more))


def test_a_number_under_an_unfamiliar_name_or_in_an_expression_counts(citations: Citations) -> None:
    assert check(citations, ITERS, "6.5e12", 3, unit="step").value == 6_500_000_000_000
    assert check(citations, ITERS, 30_000, 4).value == 30_000


@pytest.mark.parametrize(
    ("value", "line", "reason"),
    [
        (1000, 3, "seed"),
        (3000, 3, "lr"),
        (500, 4, "every"),
        (9, 4, "does not hold the number 9"),
        (400, 2, "warm"),
    ],
)
def test_a_number_of_another_quantity_is_no_length(
    citations: Citations, value: int, line: int, reason: str
) -> None:
    file = "sizes.yaml" if value == 400 else "train.py"
    assert reason in check(citations, ITERS, value, line, file=file).reason


@pytest.mark.parametrize(
    ("value", "line", "reason"),
    [
        (424242, 8, "nothing reads unused_steps"),
        (777, 10, "nothing calls the function never_called"),
        (888, 13, "never runs"),
        (555, 17, "never runs"),
    ],
)
def test_what_cannot_run_or_is_not_used_proves_nothing(
    citations: Citations, value: int, line: int, reason: str
) -> None:
    assert reason in check(citations, ITERS, value, line).reason


def test_several_numbers_make_a_length_that_is_computed_here(citations: Citations) -> None:
    terms = [{"value": 30_000, "file": "train.py", "line": 4}]
    found = check(citations, ITERS, None, 4, unit="step", formula="a * 0.25", terms=terms)
    assert isinstance(found, Evidence)
    assert found.value == 7500
    assert found.note == "30,000 (train.py:4 (model)) * 0.25 = 7,500"
    wrong = check(citations, ITERS, 30_000, 4, unit="step", formula="a * 0.25", terms=terms)
    assert "the formula gives 7,500" in wrong.reason
    planted = check(citations, ITERS, None, 4, formula="a * 1000", terms=terms)
    assert "no sum or product over its terms" in planted.reason
    absent = [{"value": 31_000, "file": "train.py", "line": 4}]
    assert "31000" in check(citations, ITERS, None, 4, formula="a", terms=absent).reason


def test_tokens_become_steps_by_the_batch_and_the_sequence(
    citations: Citations, tmp_path: Path
) -> None:
    found = check(citations, ITERS, 1_000_000, 1, file="sizes.yaml", unit="token")
    assert found.value == 200
    assert found.note == (
        "1,000,000 tokens / (50 global batch (c:1) x 100 sequence length (c:1)) = 200 steps"
    )
    bare = Citations(RepoFiles(tmp_path), {"sizes.yaml"}, "python train.py")
    missing = check(bare, ITERS, 1_000_000, 1, file="sizes.yaml", unit="token")
    assert "the global batch and the sequence length are not known" in missing.reason


def test_a_length_proves_its_unit_unless_the_line_names_another(citations: Citations) -> None:
    found = citations.prove(
        [Finding(field=ITERS, value=12, file="train.py", line=19, unit="epoch")]
    ).found
    assert (found[ITERS].value, found[UNIT].value) == (12, "epoch")
    found = citations.prove(
        [Finding(field=ITERS, value=12, file="train.py", line=19, unit="step")]
    ).found
    assert UNIT not in found


def test_zero_and_ends_of_names_and_stems_of_files(citations: Citations) -> None:
    assert check(citations, "dataset_config.num_workers", 0, 5).value == 0
    assert check(citations, "dataset_config.train", "wmt14_", 5).value == "wmt14"
    assert check(citations, "model_config.model_name", "wide_resnet", 6).value == "wide_resnet"
    assert "can have" in check(citations, ITERS, 0, 5).reason


def test_a_documented_default_of_a_library_that_is_used(citations: Citations) -> None:
    library = "library:transformers.TrainingArguments"
    found = check(citations, ITERS, 3, 1, file=library, unit="epoch")
    assert (found.value, found.source, found.text) == (
        3,
        "library",
        "transformers.TrainingArguments",
    )
    assert "is 3" in check(citations, ITERS, 5, 1, file=library).reason
    other = check(citations, ITERS, 3, 1, file="library:trl.SFTConfig")
    assert "nothing that runs uses trl.SFTConfig" in other.reason


def test_names_in_any_script_are_names(tmp_path: Path) -> None:
    text = "model = load('通义千问')\nname = '训练集'\nmark = '-'\nuse(name, mark)\n"
    (tmp_path / "train.py").write_text(text)
    citations = Citations(RepoFiles(tmp_path), {"train.py"}, "python train.py")
    assert check(citations, "model_config.model_name", "通义千问", 1).value == "通义千问"
    assert "does not hold" in check(citations, "dataset_config.train", "文心一言", 2).reason
    assert "does not hold" in check(citations, "dataset_config.train", "---", 3).reason
    assert not same_value("通义千问", "文心一言")


def test_a_constant_that_an_f_string_reads_is_used(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        'EPOCHS = 10\nrun(f"python worker.py --epochs {EPOCHS} --lr 0.1 --wd 0.1")\n'
    )
    citations = Citations(RepoFiles(tmp_path), {"train.py"}, "python train.py", None, "train.py")
    assert check(citations, ITERS, 10, 1, unit="epoch").value == 10


def test_there_is_none_where_a_line_shows_it(citations: Citations) -> None:
    file = "sizes.yaml"
    assert check(citations, "dataset_config.valid", None, 3, file=file).value is None
    assert check(citations, ITERS, None, 20).value is None
    assert "does not say" in check(citations, "dataset_config.valid", None, 1).reason
    assert "every training has one" in check(citations, "dataset_config.train", None, 14).reason
    assert "no code" in check(citations, "dataset_config.valid", None, 500).reason


@pytest.mark.parametrize(
    "line", ["eval_split: 0.0", "val_files: []", "val: {}", 'eval_file: ""', "validate_every: 0"]
)
def test_zero_and_emptiness_are_none(tmp_path: Path, line: str) -> None:
    (tmp_path / "c.yaml").write_text(line + "\n")
    (tmp_path / "t.py").write_text("val_sets = []\nuse(val_sets)\n")
    citations = Citations(RepoFiles(tmp_path), {"c.yaml", "t.py"}, "python t.py")
    assert check(citations, "dataset_config.valid", None, 1, file="c.yaml").value is None
    assert check(citations, "dataset_config.valid", None, 1, file="t.py").value is None


def test_a_domain_that_the_line_speaks_of_is_not_vetoed_by_a_name(tmp_path: Path) -> None:
    """BERT is known for language, and this line trains it on proteins."""
    (tmp_path / "t.py").write_text(
        'model = bert_for("protein_folding")\n\n\n\n\n'
        'other = bert("x")\noptim = AdamWConfig(model)\n'
    )
    citations = Citations(RepoFiles(tmp_path), {"t.py"}, "python t.py")
    task = "model_config.task_type"
    assert check(citations, task, "Science", 1, file="t.py").value == "Science"
    assert check(citations, task, "NLP", 1, file="t.py").value == "NLP"
    assert "names NLP" in check(citations, task, "Science", 6, file="t.py").reason
    found = check(citations, "training_config.optimizer", "AdamW", 7, file="t.py")
    assert found.value == "AdamW"
    assert "hold" in check(citations, "training_config.optimizer", "SGD", 7, file="t.py").reason


@pytest.mark.parametrize(
    ("file", "command"),
    [
        ("train.job", "sbatch train.job"),
        ("run.pbs", "qsub run.pbs"),
        ("run.lsf", "bsub < run.lsf"),
        ("job.sub", "condor_submit job.sub"),
        ("train.config", "python t.py --config train.config"),
        ("Dockerfile", "docker build ."),
        ("justfile", "just train"),
        ("Makefile", "make train"),
        ("scripts/launch", "bash scripts/launch"),
        ("scripts/launch", "bash go.sh"),
    ],
)
def test_what_the_launch_follows_or_names_can_be_cited(
    tmp_path: Path, file: str, command: str
) -> None:
    (tmp_path / "scripts").mkdir()
    (tmp_path / "go.sh").write_text("cd $HERE && ./scripts/launch\n")
    (tmp_path / file).write_text("#!/bin/bash\npython t.py --data nyc_taxi\n")
    (tmp_path / "scripts" / "other").write_text("#!/bin/bash\npython t.py --data planted\n")
    files = RepoFiles(tmp_path)
    part = files_of_job(files, command, [])
    citations = Citations(files, part, command)
    train = "dataset_config.train"
    assert check(citations, train, "nyc_taxi", 2, file=file).value == "nyc_taxi"
    assert check(citations, train, "planted", 2, file="scripts/other").reason


def test_a_quotation_finds_its_line_and_a_refusal_names_the_nearest(citations: Citations) -> None:
    """Small models miscount lines."""
    quoted = check(citations, ITERS, 30_000, 15, quote="schedule(30_000,  share=0.25")
    assert (quoted.value, quoted.line) == (30_000, 4)
    assert check(citations, ITERS, 12, 2, quote="no such text").reason.endswith("train.py:19 does")
    assert check(citations, ITERS, 40, 12).reason.endswith("`command` does")
    assert "does" not in check(citations, ITERS, 777, 2).reason.partition(";")[2]


@pytest.mark.parametrize(
    "formula",
    [
        "a ** b",
        "f(a)",
        "a.real",
        "a if a else b",
        "9**9**9",
        "a / 0",
        "(" * 90,
        "a - a",
        "1e400",
        "[a]",
    ],
)
def test_only_sums_and_products_are_computed(formula: str) -> None:
    assert evaluate_formula(formula, [2.0, 3.0]) is None


def test_each_file_is_read_and_taken_apart_once(
    citations: Citations, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many findings cite it, on lines that count and on lines that cannot run."""
    from schedmate.agent.react import sources

    taken: list[str] = []
    whole, tree = sources.tokens_by_line, sources.syntax_tree

    def tokens(path: str, lines: list[str], tree: Any) -> dict[int, list[str]]:
        taken.append(path)
        return whole(path, lines, tree)

    def syntax_tree(lines: list[str]) -> Any:
        taken.append("tree")
        return tree(lines)

    monkeypatch.setattr(sources, "tokens_by_line", tokens)
    monkeypatch.setattr(sources, "syntax_tree", syntax_tree)
    for line in (4, 8, 10, 13):
        check(citations, ITERS, 30_000, line, unit="step")
    assert sorted(taken) == ["sizes.yaml", "train.py", "tree"]
