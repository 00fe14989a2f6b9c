"""Launch commands as typed: what runs, with what, on how many GPUs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from schedmate.agent.launch.plan import LaunchPlan
from schedmate.agent.launch.planning import plan_launch
from schedmate.agent.launch.repo import Repo
from schedmate.agent.values import Origin, Unknown
from schedmate.base.errors import InputError
from schedmate.jobs import LaunchConfig

Plan = Callable[..., LaunchPlan]

FILES = {
    "tools/train.py": "",
    "tools/prepare_data.py": "",
    "pkg/__init__.py": "",
    "pkg/cli.py": "def main(): ...\n",
    "src/lib/__main__.py": "",
    "src/lib/train.py": "",
    "extra/deep/mod.py": "",
    "run.sh": '#!/bin/bash\npython train.py "$@"\n',
    "bin/start": "#!/usr/bin/env python3\n",
    "hosts.txt": "# nodes\nw1 slots=8\nw2 slots=8\n",
    "acc.yaml": "num_processes: 16\nnum_machines: 2\nmixed_precision: bf16\n"
    "deepspeed_config:\n  zero_stage: 3\n  deepspeed_config_file: ds.json\n",
    "job.slurm": "#!/bin/bash\n#SBATCH --nodes=2 --job-name=exp\n#SBATCH --gres=gpu:a100:4\n"
    "#SBATCH -t 1-02:00:00 # a day\n\n#SBATCH -p long\n"
    "srun torchrun --nnodes $SLURM_NNODES --nproc_per_node=$SLURM_GPUS_ON_NODE train.py ${1:-x}\n",
}


def arguments(plan: LaunchPlan) -> list[str | None]:
    return [value.plain() for value in plan.argv]


def facts(plan: LaunchPlan) -> dict[str, object]:
    return {name: value.data for name, value in plan.facts.items()}


@pytest.mark.parametrize(
    ("command", "entry", "argv"),
    [
        ("python train.py --lr 0.1", "train.py", ["--lr", "0.1"]),
        ("python3.10 -u -X dev -W ignore -O train.py 'a b'", "train.py", ["a b"]),
        ("/opt/env/bin/python ./train.py", "train.py", []),
        ("python -m tools.train x", "tools/train.py", ["x"]),
        ("python -m lib.train x", "src/lib/train.py", ["x"]),
        ("python -um lib x", "src/lib/__main__.py", ["x"]),
        ("PYTHONPATH=extra python -m deep.mod", "extra/deep/mod.py", []),
        ("cd tools && python train.py 1", "tools/train.py", ["1"]),
        ("cd tools; python ../train.py 1", "train.py", ["1"]),
        ("pushd tools; popd; python train.py", "train.py", []),
        ("python src/lib", "src/lib/__main__.py", []),
        ("export LR=0.2; python train.py --lr=$LR", "train.py", ["--lr=0.2"]),
        ("python train.py ${LR:-0.3} $((2 * 8))", "train.py", ["0.3", "16"]),
        ("python train.py --lr 1 \\\n  --wd 2 # note", "train.py", ["--lr", "1", "--wd", "2"]),
        ("python train.py > log.txt 2>&1 < /dev/null &", "train.py", []),
        ("nohup python train.py a & ", "train.py", ["a"]),
        ("time -p python train.py | tee log", "train.py", []),
        ("exec sudo -u me env -u X A=1 nice -n 5 python train.py", "train.py", []),
        ("timeout -s INT 3h python train.py", "train.py", []),
        ("taskset -c 0-7 numactl --cpunodebind=0 python train.py z", "train.py", ["z"]),
        ("bash run.sh --lr 0.1 'a b'", "train.py", ["--lr", "0.1", "a b"]),
        ("./run.sh 1 2", "train.py", ["1", "2"]),
        ("bin/start 3", "bin/start", ["3"]),
        ("sh -ec 'python train.py --lr 0.1'", "train.py", ["--lr", "0.1"]),
        ("bash -c 'python train.py $1' name 7", "train.py", ["7"]),
        ("bash <<EOF\npython train.py 5\nEOF", "train.py", ["5"]),
        ("ray job submit --address a --runtime-env-json='{\"a\": 1}' -- python train.py z",
         "train.py", ["z"]),
        ("ray job submit 'python train.py z'", "train.py", ["z"]),
        ("poetry run python train.py", "train.py", []),
        ("uv run --with numpy train.py x", "train.py", ["x"]),
        ("pipenv run python train.py", "train.py", []),
        ("conda run -n x --no-capture-output python train.py", "train.py", []),
        ("micromamba run --name x python train.py", "train.py", []),
        ("singularity exec --nv -B /a:/b image.sif python train.py 1", "train.py", ["1"]),
        ("apptainer exec docker://x python train.py 1", "train.py", ["1"]),
        ("docker run --rm --gpus all -v /a:/w -w /w img:1 python train.py 1", "train.py", ["1"]),
        ("git pull; pip install -r r.txt; mkdir -p o; python train.py", "train.py", []),
        ("python tools/prepare_data.py && python train.py x", "train.py", ["x"]),
        ("ARGS=(--a 'b c'); ARGS+=(-d); python train.py \"${ARGS[@]}\"",
         "train.py", ["--a", "b c", "-d"]),
        ("if [ 1 -eq 2 ]; then python tools/train.py; else python train.py; fi", "train.py", []),
        ("train() { python train.py \"$@\"; }; train 1 2", "train.py", ["1", "2"]),
        ("python -m cProfile -o prof.out train.py x", "train.py", ["x"]),
        ("nsys profile -o out -t cuda python train.py x", "train.py", ["x"]),
    ],
)  # fmt: skip
def test_what_runs(plan: Plan, command: str, entry: str, argv: list[str]) -> None:
    result = plan(command, FILES)
    assert (result.entry, arguments(result)) == (entry, argv)
    assert result.console is None


@pytest.mark.parametrize(
    ("command", "launchers", "expected"),
    [
        ("torchrun --standalone --nproc-per-node 4 train.py --nnodes 9", ["torchrun"],
         {"nodes": 1, "procs_per_node": 4, "procs": 4, "gpus": 4}),
        ("torchrun --nnodes=2 --nproc_per_node=8 --rdzv_id 1 -m lib.train", ["torchrun"],
         {"nodes": 2, "procs_per_node": 8, "procs": 16, "gpus": 16}),
        ("torchrun train.py", ["torchrun"],
         {"nodes": 1, "procs_per_node": 1, "procs": 1, "gpus": 1}),
        ("torchrun --nproc_per_node gpu train.py", ["torchrun"], {"nodes": 1}),
        ("python -m torch.distributed.launch --use_env --nproc_per_node=2 train.py",
         ["torch.distributed.launch"],
         {"nodes": 1, "procs_per_node": 2, "procs": 2, "gpus": 2}),
        ("accelerate launch --multi_gpu --num_processes 4 --mixed_precision fp16 train.py",
         ["accelerate"], {"procs": 4, "gpus": 4, "precision": "fp16"}),
        ("accelerate launch --config_file acc.yaml --num_processes 8 train.py", ["accelerate"],
         {"procs": 8, "gpus": 8, "nodes": 2, "precision": "bf16", "zero_stage": 3,
          "deepspeed_config": "ds.json", "accelerate_config": "acc.yaml"}),
        ("deepspeed --num_gpus 4 --num_nodes=2 train.py", ["deepspeed"],
         {"gpus_per_node": 4, "nodes": 2, "gpus": 8, "procs": 8}),
        ("deepspeed --include localhost:0,1,2 train.py", ["deepspeed"],
         {"nodes": 1, "gpus": 3, "gpus_per_node": 3, "procs": 3}),
        ("deepspeed --hostfile=hosts.txt train.py", ["deepspeed"],
         {"nodes": 2, "gpus_per_node": 8, "gpus": 16, "procs": 16}),
        ("mpirun -np 8 -H a:4,b:4 -x A=1 -mca pml ob1 -bind-to none python train.py", ["mpirun"],
         {"procs": 8, "nodes": 2, "gpus": 8}),
        ("mpiexec -n 4 python train.py", ["mpirun"], {"procs": 4, "gpus": 4}),
        ("horovodrun -np 16 -H h1:8,h2:8 python train.py", ["horovodrun"],
         {"procs": 16, "nodes": 2, "gpus": 16}),
        ("srun -N2 --gres=gpu:v100:8 -p gpu -t 90 python train.py", ["srun"],
         {"nodes": 2, "gpus_per_node": 8, "gpus": 16, "gpu_type": "v100", "partition": "gpu",
          "time_limit_s": 5400.0}),
        ("srun -N 2 --gpus-per-node a100:4 sh -c 'torchrun --nnodes 2 --nproc_per_node 4 train.py'",
         ["srun", "torchrun"],
         {"nodes": 2, "gpus_per_node": 4, "gpu_type": "a100", "procs_per_node": 4, "procs": 8,
          "gpus": 8}),
        ("srun -n 16 --gpus-per-task=1 python train.py", ["srun"],
         {"tasks": 16, "procs": 16, "gpus_per_task": 1, "gpus": 16}),
        ("srun -n 2 python train.py", ["srun"], {"tasks": 2, "procs": 2}),
        ("srun --gres=gpu:8 --ntasks=32 --ntasks-per-node=8 python train.py", ["srun"],
         {"gpus_per_node": 8, "tasks": 32, "tasks_per_node": 8, "nodes": 4, "gpus": 32,
          "procs": 32}),
        ("sbatch job.slurm", ["sbatch", "srun", "torchrun"],
         {"nodes": 2, "job_name": "exp", "gpus_per_node": 4, "gpu_type": "a100", "gpus": 8,
          "time_limit_s": 93600.0, "partition": "long", "procs_per_node": 4, "procs": 8}),
        ("sbatch --nodes=4 job.slurm", ["sbatch", "srun", "torchrun"],
         {"nodes": 4, "job_name": "exp", "gpus_per_node": 4, "gpu_type": "a100", "gpus": 16,
          "time_limit_s": 93600.0, "partition": "long", "procs_per_node": 4, "procs": 16}),
        ("sbatch --gpus=2 --wrap 'python train.py'", ["sbatch"], {"gpus": 2}),
        ("python -m paddle.distributed.launch --gpus 0,1,2 train.py",
         ["paddle.distributed.launch"], {"gpus_per_node": 3, "gpus": 3}),
        ("colossalai run --nproc_per_node 4 train.py", ["colossalai"],
         {"nodes": 1, "procs_per_node": 4, "procs": 4, "gpus": 4}),
        ("composer -n 8 train.py", ["composer"],
         {"nodes": 1, "procs_per_node": 8, "procs": 8, "gpus": 8}),
        ("lightning run model --devices 2 --num-nodes 2 train.py", ["fabric"],
         {"gpus_per_node": 2, "nodes": 2, "gpus": 4}),
        ("CUDA_VISIBLE_DEVICES=0,3 python train.py", [], {"gpus": 2}),
        ("CUDA_VISIBLE_DEVICES= python train.py", [], {"gpus": 0}),
        ("CUDA_VISIBLE_DEVICES=0,1,2,3 torchrun --nproc_per_node 2 train.py", ["torchrun"],
         {"nodes": 1, "procs_per_node": 2, "procs": 2, "gpus": 2}),
    ],
)  # fmt: skip
def test_launchers_and_facts(
    plan: Plan, command: str, launchers: list[str], expected: dict[str, object]
) -> None:
    result = plan(command, FILES)
    assert result.launchers == launchers
    assert facts(result) == expected
    assert result.entry in ("train.py", "src/lib/train.py")


def test_visible_gpus_of_the_launch_configuration(plan: Plan) -> None:
    command = "torchrun --nproc_per_node $(nvidia-smi -L | wc -l) train.py"
    assert facts(plan(command, gpus=4))["procs_per_node"] == 4
    assert "procs_per_node" not in facts(plan(command))


def test_variables_that_launchers_set(plan: Plan) -> None:
    result = plan("WORLD_SIZE=3 torchrun --nnodes 2 --nproc_per_node 4 train.py")
    env = {name: value.plain() for name, value in result.env.items()}
    assert env == {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "3", "LOCAL_WORLD_SIZE": "4"}
    result = plan("srun -n 8 bash s.sh", {"s.sh": "deepspeed train.py\n"}, gpus=8)
    assert result.env["SLURM_NTASKS"].data == "8"
    assert result.env["WORLD_SIZE"].data == "8"
    assert result.facts["procs"].data == 8
    assert plan("deepspeed train.py").env["WORLD_SIZE"].plain() is None
    assert plan("python train.py").env == {}


def test_launch_configuration_wins_with_a_warning(plan: Plan) -> None:
    result = plan("torchrun --nproc_per_node 4 train.py", gpus=8, nodes=1, gpu_type="H100")
    assert facts(result)["gpus"] == 8
    assert result.facts["gpus"].origin == Origin("launch", text="gpus=8")
    assert facts(result)["gpu_type"] == "H100"
    assert [w for w in result.warnings if "8 gpus" in w and "4" in w]
    assert not [w for w in result.warnings if "nodes" in w]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("pyproject.toml", '[project.scripts]\ntool = "pkg.cli:main"\n'),
        ("pyproject.toml", '[tool.poetry.scripts]\ntool = "pkg.cli:main"\n'),
        ("setup.cfg", "[options.entry_points]\nconsole_scripts =\n  tool = pkg.cli:main [gpu]\n"),
        ("setup.py", "setup(entry_points={'console_scripts': ['tool=pkg.cli:main']})\n"),
        ("setup.py", 'setup(entry_points="""\n  [console_scripts]\n  tool=pkg.cli:main\n""")\n'),
    ],
)
def test_declared_console_scripts(plan: Plan, name: str, text: str) -> None:
    result = plan("tool train cfg.yml", FILES | {name: text})
    assert (result.entry, result.module, result.function) == ("pkg/cli.py", "pkg.cli", "main")
    assert arguments(result) == ["train", "cfg.yml"]
    assert result.console is None


@pytest.mark.parametrize(
    ("command", "console"),
    [
        ("fairseq-train data --arch x", "fairseq-train"),
        ("llamafactory-cli train x.yaml", "llamafactory-cli"),
        ("yolo train model=x", "yolo"),
        ("python -m fairseq_cli.train data", "fairseq_cli.train"),
    ],
)
def test_third_party_programs(plan: Plan, command: str, console: str) -> None:
    result = plan(command)
    assert (result.entry, result.console) == (None, console)
    assert len(result.argv) == len(command.split()) - (3 if " -m " in command else 1)


@pytest.mark.parametrize(
    "told",
    [
        "$(which tool-train)",
        "`which tool-train`",
        "$(command -v tool-train)",
        "/opt/bin/tool-train",
    ],
)
def test_installed_script_given_to_python(plan: Plan, told: str) -> None:
    result = plan(f"python -m torch.distributed.launch --nproc_per_node 4 {told} data --lr 1")
    assert (result.entry, result.console) == (None, "tool-train")
    assert arguments(result) == ["data", "--lr", "1"]
    assert facts(result)["gpus"] == 4


def test_makefile(plan: Plan) -> None:
    makefile = (
        "LR ?= 0.1\nOUT := runs/$(LR)\n.PHONY: train\ntrain: prep\n"
        "\t@CUDA_VISIBLE_DEVICES=0 python train.py --lr $(LR) \\\n\t  --out $(OUT) $$HOME\n"
        "prep:\n\tpython tools/prepare_data.py\n"
    )
    result = plan("make train LR=0.3", FILES | {"Makefile": makefile})
    assert result.entry == "train.py"
    assert arguments(result) == ["--lr", "0.3", "--out", "runs/0.3", None]
    assert result.argv[0].origin == Origin("script", "Makefile", 5, "--lr")
    assert result.argv[2].origin == Origin("script", "Makefile", 6, "--out")


def test_origins_of_arguments(plan: Plan) -> None:
    script = (
        "#!/bin/bash\n"
        "LR=0.1\n"
        "OPTS=(\n  --wd 0.2\n)\n"
        "export OMP=4\n"
        "python train.py --lr $LR \\\n"
        '  --name=run_$LR "${OPTS[@]}" $1 "$@" $NOWHERE\n'
    )
    result = plan("bash s.sh typed", {"s.sh": script})
    by_text = {value.plain() or value.data.text: value.origin for value in result.argv}
    assert by_text == {
        "--lr": Origin("script", "s.sh", 7, "--lr"),
        "0.1": Origin("environment", "s.sh", 2, "LR"),
        "--name=run_0.1": Origin("script", "s.sh", 8, "--name=run_0.1"),
        "--wd": Origin("script", "s.sh", 4, "--wd"),
        "0.2": Origin("script", "s.sh", 4, "0.2"),
        "typed": Origin("command", text="typed"),
        "$NOWHERE": Origin("script", "s.sh", 8, "$NOWHERE"),
    }
    assert isinstance(result.argv[-1].data, Unknown)
    assert result.env["OMP"].data == "4"
    assert result.env["OMP"].origin == Origin("environment", "s.sh", 6, "OMP")
    assert any("$NOWHERE" in warning for warning in result.warnings)


def test_origins_of_facts(plan: Plan) -> None:
    result = plan("torchrun --nproc_per_node=8 train.py")
    assert result.facts["gpus"].origin == Origin("command", text="--nproc_per_node=8")
    assert result.facts["nodes"].origin == Origin("library", text="torchrun --nnodes")
    result = plan("accelerate launch --config_file acc.yaml train.py", FILES)
    assert result.facts["gpus"].origin == Origin("config", "acc.yaml", 1, "num_processes")
    result = plan("sbatch job.slurm", FILES)
    assert result.facts["gpus"].origin == Origin(
        "script", "job.slurm", 3, "--gres=gpu:a100:4", "4 per node x 2 nodes"
    )


@pytest.mark.parametrize(
    ("command", "entry"),
    [
        ("python /home/me/project/tools/train.py", "tools/train.py"),
        ("python project/train.py", "train.py"),
        ("python $ROOT/tools/train.py", "tools/train.py"),
        ("python ~/project/train.py", "train.py"),
        ("cd /workspace/project/tools && python train.py", "tools/train.py"),
    ],
)
def test_paths_of_another_machine(plan: Plan, command: str, entry: str) -> None:
    assert plan(command, FILES).entry == entry


def test_a_python_launcher_of_the_repository(plan: Plan) -> None:
    launcher = "import sys\nimport subprocess\nsubprocess.call(sys.argv[1:])\n"
    result = plan("python launch.py train.py --lr 1", {"launch.py": launcher})
    assert (result.entry, result.launchers) == ("train.py", ["launch.py"])
    assert arguments(result) == ["--lr", "1"]
    result = plan("python data.py train.py", {"data.py": "import sys\n"})
    assert result.entry == "data.py"


@pytest.mark.parametrize("program", ["bench.py", "-m tools.bench"])
def test_a_command_given_as_an_option(plan: Plan, program: str) -> None:
    given = f'python {program} --seeds 3 --command "uv run python train.py --lr 1" --workers 2'
    result = plan(given, {"bench.py": "", "tools/bench.py": ""})
    assert (result.entry, arguments(result)) == ("train.py", ["--lr", "1"])
    assert "bench" in result.warnings[0]
    result = plan('python train.py --command "pick up" --cmd python', {})
    assert arguments(result) == ["--command", "pick up", "--cmd", "python"]


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("  ", "command is empty"),
        ("python trian.py", "trian.py, started by the command, is not in project; did you mean"),
        ("python trian.py", "did you mean train.py?"),
        ("bash rum.sh", "did you mean run.sh?"),
        ("./nope.sh", "nope.sh"),
        ("python -m pkg.nothing", "pkg/nothing.py"),
        ("torchrun --nproc_per_node 2 tran.py", "did you mean train.py"),
        ("ls -l; echo hi", "runs no Python program"),
        ("python -c 'print(1)'", "runs no Python program"),
        ("python train.py" + " x" * 100_000, "characters"),
    ],
)  # fmt: skip
def test_commands_that_cannot_be_planned(plan: Plan, command: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        plan(command, FILES)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value).replace(command, "")


def test_nothing_is_run(plan: Plan, repo: Path, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    command = f"X=$(touch {marker}) `touch {marker}`; touch {marker}; python train.py $X"
    plan(command, {"train.py": f"open({str(marker)!r}, 'w')\n", "setup.py": "1/0\n"})
    assert not marker.exists()


def test_a_link_out_of_the_repository_is_not_read(plan: Plan, repo: Path, tmp_path: Path) -> None:
    (tmp_path / "outside.sh").write_text("python train.py --secret\n")
    (repo / "link.sh").symlink_to(tmp_path / "outside.sh")
    with pytest.raises(InputError):
        plan("bash link.sh")
    with pytest.raises(InputError):
        plan("bash ../outside.sh")


def test_repo_may_be_relative(plan: Plan, repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan("python train.py")
    monkeypatch.chdir(repo.parent)
    assert plan_launch("python train.py", Repo(Path("project")), LaunchConfig()).entry == "train.py"
