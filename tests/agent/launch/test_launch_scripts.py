"""Scripts: control flow, several runs, guards, bounds, bad text."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from schedmate.agent.launch.plan import LaunchPlan
from schedmate.base.errors import InputError

Plan = Callable[..., LaunchPlan]


def arguments(plan: LaunchPlan) -> list[str | None]:
    return [value.plain() for value in plan.argv]


def test_a_loop_gives_its_first_run(plan: Plan) -> None:
    script = "for lr in 0.1 0.2 0.3; do\n  python train.py --lr $lr\ndone\n"
    result = plan("bash s.sh", {"s.sh": script})
    assert arguments(result) == ["--lr", "0.1"]
    assert result.warnings == [
        "s.sh:1 loops over lr: the run with lr=0.1 is described, 2 more follow"
    ]


def test_the_training_is_chosen_among_steps(plan: Plan) -> None:
    script = (
        "python tools/preprocess.py --in x\n"
        "python download_data.py\n"
        "torchrun --nproc_per_node 2 main.py --epochs 3\n"
        "python evaluate.py --ckpt y\n"
    )
    files = dict.fromkeys(["tools/preprocess.py", "download_data.py", "main.py", "evaluate.py"], "")
    result = plan("bash s.sh", files | {"s.sh": script})
    assert result.entry == "main.py"
    (warning,) = result.warnings
    assert "s.sh:3" in warning
    assert "evaluate.py (s.sh:4)" in warning


def test_train_and_eval_by_the_same_file(plan: Plan) -> None:
    script = "python main.py --eval-only\npython main.py --epochs 3\n"
    result = plan("bash s.sh", {"s.sh": script, "main.py": ""})
    assert arguments(result) == ["--epochs", "3"]


def test_undecided_branches_are_followed_in_order(plan: Plan) -> None:
    script = (
        "if [ -d /data/x ]; then\n  python train.py --data x\n"
        "else\n  python train.py --data y\nfi\n"
    )
    result = plan("bash s.sh", {"s.sh": script})
    assert arguments(result) == ["--data", "x"]
    assert any("not decided" in warning for warning in result.warnings)


def test_files_of_the_repository_decide_tests(plan: Plan) -> None:
    script = "if [[ -f cfg.yaml ]]; then C=cfg.yaml; else C=other; fi\npython train.py $C\n"
    assert arguments(plan("bash s.sh", {"s.sh": script, "cfg.yaml": ""})) == ["cfg.yaml"]


def test_scripts_call_scripts_with_their_environment(plan: Plan) -> None:
    files = {
        "scripts/outer.sh": 'export LR=0.5\nNO=1\nDIR=$(dirname "$0")\nbash $DIR/inner.sh "$@"\n',
        "scripts/inner.sh": "source scripts/common.sh\npython train.py $LR ${NO:-no} $WD $1\n",
        "scripts/common.sh": "WD=0.01\n",
    }
    assert arguments(plan("bash scripts/outer.sh a", files)) == ["0.5", "no", "0.01", "a"]


def test_script_directory_idiom(plan: Plan) -> None:
    script = (
        'HERE="$( cd "$( dirname "${BASH_SOURCE[0]}" )" >/dev/null 2>&1 && pwd )"\n'
        "cd $HERE/..\npython train.py\n"
    )
    result = plan("bash scripts/s.sh", {"scripts/s.sh": script})
    assert (result.entry, result.cwd) == ("train.py", ".")


def test_script_written_for_its_own_directory(plan: Plan) -> None:
    result = plan("bash exp/s.sh", {"exp/s.sh": "python main.py\n", "exp/main.py": ""})
    assert (result.entry, result.cwd) == ("exp/main.py", "exp")
    assert any("exp/main.py is taken" in warning for warning in result.warnings)


def test_arguments_in_a_here_document(plan: Plan) -> None:
    script = (
        "read -r -d '' cmd <<EOF\npkg.train \\\n  --lr 0.1\nEOF\n"
        'if [[ ${1} != "slurm" ]]; then\n  deepspeed --module $cmd\nfi\n'
    )
    result = plan("bash s.sh", {"s.sh": script, "pkg/train.py": "", "pkg/__init__.py": ""})
    assert (result.entry, arguments(result)) == ("pkg/train.py", ["--lr", "0.1"])


def test_a_guarded_script_is_read_as_if_its_arguments_were_given(plan: Plan) -> None:
    script = "if [ $# -lt 1 ]; then\n  echo usage\n  exit 1\nfi\npython train.py --cfg $1\n"
    result = plan("bash s.sh", {"s.sh": script})
    assert arguments(result) == ["--cfg", None]
    assert any(warning.startswith("s.sh:3 ends before") for warning in result.warnings)
    assert arguments(plan("bash s.sh c.yaml", {"s.sh": script})) == ["--cfg", "c.yaml"]


def test_exit_ends_a_script(plan: Plan) -> None:
    result = plan("bash s.sh", {"s.sh": "python train.py a\nexit 0\npython train.py b\n"})
    assert arguments(result) == ["a"]
    assert result.warnings == []


def test_slurm_script_that_submits_itself(plan: Plan) -> None:
    script = "sbatch --nodes 2 <<EOF\n#!/bin/bash\n#SBATCH -J x\nsrun python train.py $1\nEOF\n"
    result = plan("bash s.sh 7", {"s.sh": script})
    assert result.launchers == ["sbatch", "srun"]
    assert result.facts["nodes"].data == 2


@pytest.mark.parametrize(
    "script",
    [
        "bash s.sh\n",
        "source s.sh\n",
        "f() { f; }; f\n",
        "while true; do :; done\n",
        "for ((;;)); do :; done\n",
        "while :; do while :; do while :; do :; done; done; done\n",
        "eval 'eval \"eval $(cat s.sh)\"'\n",
        "f() { f; f; }; f\n",
        "for a in {1..200}; do for b in {1..200}; do for c in {1..200}; do :; done; done; done\n",
        "X=" + "$(echo " * 200 + ")" * 200 + "\n",
        "X=" + "${Y:-" * 500 + "}" * 500 + "\n",
        "(" * 5_000 + "\n",
        "if true; then " * 500 + "\n",
        "X='" + "a" * 500_000 + "\n",
        "x " * 300_000 + "\n",
        "\\\n" * 100_000,
    ],
)
def test_no_script_takes_long(plan: Plan, script: str) -> None:
    start = time.process_time()  # of this process alone, however busy the machine is
    with contextlib.suppress(InputError):
        plan("bash s.sh && python train.py", {"s.sh": script})
    assert time.process_time() - start < 8.0


def test_a_large_script_is_refused(plan: Plan) -> None:
    with pytest.raises(InputError, match="larger than 2 MB"):
        plan("bash s.sh", {"s.sh": "# x\n" * 700_000 + "python train.py\n"})


def test_broken_utf8_and_windows_line_ends(plan: Plan, repo: Path) -> None:
    (repo / "s.sh").write_bytes(
        b"\xef\xbb\xbf# caf\xe9 \xff\r\npython train.py \\\r\n  --lr 0.1\r\n"
    )
    result = plan("bash s.sh")
    assert arguments(result) == ["--lr", "0.1"]
    assert result.argv[0].origin is not None
    assert result.argv[0].origin.line == 3


def test_a_comment_ends_a_continued_command(plan: Plan) -> None:
    script = "python train.py \\\n  --a 1 \\\n  # --b 2 \\\n  --c 3\n"
    assert arguments(plan("bash s.sh", {"s.sh": script})) == ["--a", "1"]


def test_missing_files_in_a_script_give_way_to_what_is_there(plan: Plan) -> None:
    script = "python train_gone.py --x\npython main.py --y\n"
    result = plan("bash s.sh", {"s.sh": script, "main.py": ""})
    assert (result.entry, arguments(result)) == ("main.py", ["--y"])
    assert "train_gone.py" in result.warnings[0]
    with pytest.raises(InputError, match=r"train_gone\.py, started by s\.sh:1, is not in project"):
        plan("bash s.sh", {"s.sh": "python train_gone.py\n"})


PARSE_OPTIONS = """
while true; do
  [ -z "${1:-}" ] && break # no more
  case "$1" in
  --help | -h) exit 0 ;;
  --*)
    name=$(echo "$1" | sed s/^--// | sed s/-/_/g)
    eval '[ -z "${'$name'+xxx}" ]' && echo "$0: invalid option $1" 1>&2 && exit 1
    oldval="$(eval echo \\$$name)"
    if [ "$oldval" == "true" ] || [ "$oldval" == "false" ]; then
      was_bool=true
    else
      was_bool=false
    fi
    eval $name=\\"$2\\"
    if $was_bool && [[ "$2" != "true" && "$2" != "false" ]]; then
      exit 1
    fi
    shift 2
    ;;
  *) break ;;
  esac
done
true
"""


def test_options_that_become_variables(plan: Plan) -> None:
    """The way of Kaldi's recipes, and of ESPnet and WeNet after them."""
    run = """
stage=-1
stop_stage=-1
gpus="[0,1]"
config=conf/a.yaml
. tools/parse_options.sh || exit 1
if [ ${stage} -le 2 ] && [ ${stop_stage} -ge 2 ]; then
  python prepare.py
fi
if [ ${stage} -le 3 ] && [ ${stop_stage} -ge 3 ]; then
  num_gpus=$(echo $gpus | awk -F ',' '{print NF}')
  torchrun --nproc_per_node=$num_gpus train.py --config $config
fi
"""
    files = {"run.sh": run, "tools/parse_options.sh": PARSE_OPTIONS, "prepare.py": ""}

    found = plan("bash run.sh --stage 3 --stop-stage 3 --gpus [0,1,2]", files)

    assert [value.plain() for value in found.argv] == ["--config", "conf/a.yaml"]
    assert found.facts["gpus"].data == 3
    assert not found.warnings


@pytest.mark.parametrize(
    ("script", "command", "entry", "cwd"),
    [
        ("lab/exp/scripts/run.sh", "python main.py", "lab/exp/main.py", "lab/exp"),
        ("lab/exp/scripts/run.sh", "python tools/fit.py", "lab/tools/fit.py", "lab"),
        ("scripts/run.sh", "python fit.py", "lab/tools/fit.py", "."),
        ("scripts/run.sh", "python /home/me/old/tools/fit.py", "lab/tools/fit.py", "."),
        ("scripts/run.sh", "python old/exp/main.py", "lab/exp/main.py", "."),
        ("scripts/run.sh", "python $PWD/tools/fit.py", "lab/tools/fit.py", "."),
    ],
)
def test_a_script_written_to_be_run_from_another_folder(
    plan: Plan, script: str, command: str, entry: str, cwd: str
) -> None:
    files = {"lab/exp/main.py": "", "lab/tools/fit.py": "", script: f"{command}\n"}
    result = plan(f"bash {script}", files)
    assert (result.entry, result.cwd) == (entry, cwd)
    assert entry in result.warnings[0]


def test_an_absolute_path_of_the_repository_leaves_the_working_directory(plan: Plan) -> None:
    script = "cd lab\nROOT=`realpath $PWD/..`\npython $ROOT/bin/fit.py --config conf/a.yaml\n"
    result = plan("bash run.sh", {"run.sh": script, "bin/fit.py": "", "lab/conf/a.yaml": ""})
    assert (result.entry, result.cwd, result.warnings) == ("bin/fit.py", "lab", [])


def test_an_argument_that_the_script_was_not_given(plan: Plan) -> None:
    script = (
        "CONFIG=$1\nGPUS=$2\nif [ $GPUS -lt 8 ]; then N=$GPUS; else N=8; fi\n"
        "run() { python train.py $1 $2 --launcher pytorch ${@:3}; }\nrun $CONFIG\n"
    )
    result = plan("bash tools/s.sh", {"tools/s.sh": script})
    assert arguments(result) == [None, "--launcher", "pytorch"]
    assert result.warnings == ["these arguments were not given to the script: $1"]
    assert arguments(plan("bash tools/s.sh a.py", {"tools/s.sh": script}))[0] == "a.py"


def test_a_default_for_an_argument_that_was_not_given(plan: Plan) -> None:
    script = (
        "LR=${1}\nLR=${LR:-0.1}\nMODE=$2\nWD=$3\n"
        'if [ -z "$WD" ]; then WD=2; fi\nif [ "$MODE" == debug ]; then LR=9; fi\n'
        "python train.py $LR $WD ${MODE:+--mode $MODE} $MODE\n"
    )
    assert arguments(plan("bash s.sh", {"s.sh": script})) == ["0.1", "2", None]
    assert arguments(plan("bash s.sh 5 debug 7", {"s.sh": script})) == [
        "9", "7", "--mode", "debug", "debug"
    ]  # fmt: skip


def test_a_script_whose_first_argument_says_what_to_do(plan: Plan) -> None:
    script = (
        "if [[ $1 == 'train' ]]; then\n  python train.py --lr 1\n"
        "elif [[ $1 == 'eval' ]]; then\n  python eval.py\nelse\n  echo unknown\nfi\n"
    )
    files = {"s.sh": script, "eval.py": ""}
    for command in ("bash s.sh train", "bash s.sh"):
        result = plan(command, files)
        assert (result.entry, arguments(result)) == ("train.py", ["--lr", "1"])
    assert any("for want of an argument" in warning for warning in result.warnings)
    assert plan("bash s.sh eval", files).entry == "eval.py"


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("srun -n 2 ${@:4}\n", r"needs arguments that were not given: ${@:4}"),
        ("python $2 --lr 1\n", "it starts `$2`, whose value is not known"),
        ("accelerate launch $MAIN\n", "it starts `$MAIN`, whose value is not known"),
        ("python -c 'import train'\n", "the text of `python -c` or standard input is not read"),
    ],
)
def test_why_nothing_can_be_read(plan: Plan, script: str, reason: str) -> None:
    with pytest.raises(InputError) as caught:
        plan("bash s.sh", {"s.sh": script})
    assert reason in str(caught.value)


def test_a_batch_job_submitted_for_its_number(plan: Plan) -> None:
    script = "job=$(sbatch --parsable run.sh)\nsbatch --dependency=afterok:$job eval.sh\n"
    files = {"s.sh": script, "run.sh": "srun --wait 0 python train.py\n", "eval.sh": "ls\n"}
    assert plan("bash s.sh", files).entry == "train.py"
    assert plan("./watch.sh $(sbatch -W run.sh)", files | {"watch.sh": "ls\n"}).entry == "train.py"


def test_a_folder_of_nothing(plan: Plan) -> None:
    script = 'D=$(dirname "$(dirname "$DATA")")\npython train.py --data ${D}\n'
    assert arguments(plan("DATA= bash s.sh", {"s.sh": script})) == ["--data", "."]
