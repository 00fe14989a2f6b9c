"""Iteration times of the same public plans by other open planners and simulators.

    python benchmarks/planner_peers.py FOLDER PEERS

FOLDER is that of parallel_times.py; of its plans those of GH200 nodes count, as the others mix GPU
types, which no peer here but Sailor can. PEERS has checkouts of peers that need no GPU and no
profile: `calculon` (calculon-ai, SC'23), `llm-analysis` (cli99) and `simumax` (MooreThreads), all
Apache-2.0, run as they are; nothing of them is in this project. Each gets the same datasheet as the
prediction without a profile: 494.5 TFLOP/s (the matrix products of these plans ran in tf32), 4,000
GB/s of memory, 150 GB/s between the GPUs of a node and 25 between nodes, with the efficiencies that
the peer ships for its nearest GPU. llm-analysis knows no 32-bit values, so it counts 16 bits;
Calculon has no embedding and no head. Sailor's errors are those of its own simulator with its own
profiles (SOSP'25, eth-easl/sailor at cf2c8e3), measured once and kept here. `half of the peak`: six
operations for each parameter and token at half of the datasheet's rate, by all GPUs.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from _record import record
from parallel_times import FITTED, Measured, alike, groups, naive, summary

from schedmate.schedulers.parallelism.models import find_model
from schedmate.schedulers.parallelism.operators import calibration
from schedmate.schedulers.parallelism.profile import Tables

TFLOPS, MEMORY_GB_S, LINK_GB_S, NODES_GB_S = 494.5, 4000, 150, 25
SAILOR = {
    "GPT-NEO/N16/N16_D4": -9,
    "GPT-NEO/N16/N16_D8": -6,
    "GPT-NEO/N2/N2_D1": -40,
    "GPT-NEO/N32/N32_D16": -8,
    "GPT-NEO/N32/N32_D8": -9,
    "GPT-NEO/N4/N4_D1": -7,
    "GPT-NEO/N4/N4_D2": -2,
    "GPT-NEO/N8/N8_D4": -7,
    "OPT-350/N2/N2_D1": -5,
    "OPT-350/N2/N2_D2": -10,
    "OPT-350/N32/N32_D16": -5,
    "OPT-350/N32/N32_D32": -6,
    "OPT-350/N32/N32_D8": -16,
    "OPT-350/N4/N4_D1": -2,
    "OPT-350/N4/N4_D2": 5,
    "OPT-350/N4/N4_D4": -16,
    "OPT-350/N8/N8_D4": -4,
}
"""Predicted / measured - 1 [%]."""
Sizes = dict[str, Any]


def calculon(folder: Path, line: Sizes) -> float:
    sys.path.insert(0, str(folder))
    from calculon import System  # type: ignore[import-not-found]
    from calculon.llm import Llm  # type: ignore[import-not-found]

    system = json.loads((folder / "systems" / "h100_80g_nvl8.json").read_text())
    for part, rate in (("matrix", TFLOPS), ("vector", 67)):
        system[part] = {"float32": system[part]["float16"] | {"tflops": rate}}
    system["mem1"] |= {"GiB": 96, "GBps": MEMORY_GB_S}
    within, between = system["networks"]
    within |= {"bandwidth": LINK_GB_S, "size": 4, "must_be_filled": False}
    between["bandwidth"] = NODES_GB_S
    sizes, stages = line["model_sizes"], line["stages"]
    hidden = sizes["hidden"]
    model = Llm(
        Llm.Application(
            {
                "hidden": hidden,
                "feedforward": 4 * hidden,
                "seq_size": line["sequence"],
                "attn_heads": sizes["heads"],
                "attn_size": hidden // sizes["heads"],
                "num_blocks": sizes["layers"],
            }
        ),
        logging.getLogger(),
    )
    off = ("fused_activation", "optimizer_sharding", "seq_par_ag_redo", "data_par_overlap")
    execution = dict.fromkeys(
        (*off, "weight_offload", "activations_offload", "optimizer_offload"), False
    ) | {
        "num_procs": line["gpus"],
        "tensor_par": stages[0]["tensor"],
        "pipeline_par": len(stages),
        "data_par": stages[0]["data"],
        "training": True,
        "tensor_par_net": 0,
        "pipeline_par_net": 1,
        "data_par_net": 1,
        "batch_size": line["global_batch"],
        "microbatch_size": line["micro_batch"],
        "datatype": "float32",
        "attention_type": "multihead",
        "activation_recompute": "none",
        "pipeline_interleaving": 1,
        "tensor_par_comm_type": "ar",
        "tensor_par_overlap": "none",
    }
    machine = System(system)
    model.compile(machine, Llm.Execution.from_json(execution))
    model.run(machine)
    return float(model.get_total_time())


def llm_analysis(folder: Path, line: Sizes) -> float:
    sys.path.insert(0, str(folder))
    from llm_analysis.analysis import LLMAnalysis  # type: ignore[import-not-found]
    from llm_analysis.config import (  # type: ignore[import-not-found]
        DtypeConfig,
        GPUConfig,
        ModelConfig,
        ParallelismConfig,
    )

    sizes, stages = line["model_sizes"], line["stages"]
    rates = {"inter_node_bandwidth_in_GB_per_sec": NODES_GB_S}
    numbers = (sizes["layers"], sizes["heads"], sizes["hidden"], sizes["vocabulary"])
    found = LLMAnalysis(
        ModelConfig("m", *numbers, line["sequence"]),
        GPUConfig("g", 96, MEMORY_GB_S, LINK_GB_S, 8e-6, TFLOPS, **rates),
        DtypeConfig(),
        ParallelismConfig(stages[0]["tensor"], len(stages), stages[0]["data"], sp_size=1),
    ).training(
        batch_size_per_gpu=line["micro_batch"],
        global_batch_size=line["global_batch"],
        seq_len=line["sequence"],
        flash_attn=False,
    )
    return float(found["latency_per_iter"])


def simumax(folder: Path, line: Sizes) -> float:
    sys.path.insert(0, str(folder))
    from simumax.core.config import (  # type: ignore[import-not-found]
        ModelConfig,
        StrategyConfig,
        SystemConfig,
    )
    from simumax.core.perf_llm import PerfLLM  # type: ignore[import-not-found]

    system = json.loads((folder / "configs" / "system" / "a100_pcie.json").read_text())
    system["num_per_node"] = 4
    device = system["accelerator"]
    device["mem_gbs"] = 960  # whether it fits is not asked
    for operator in device["op"].values():
        operator["tflops"] = TFLOPS
        operator.pop("accurate_efficient_factor", None)  # measured on another GPU
    for memory in device["bandwidth"].values():
        memory["gbps"] = MEMORY_GB_S
    for name, network in system["networks"].items():
        if name.startswith("intra_node"):
            network["bandwidth"]["gbps"] = LINK_GB_S
            for operator in network["op"].values():
                for measured in ("efficient_factor", "latency_us", "dp_fixed_bw"):
                    operator.pop(measured, None)
    strategy = json.loads((folder / "configs" / "strategy" / "tp4_pp1_dp2_mbs1.json").read_text())
    sizes, stages = line["model_sizes"], line["stages"]
    data, micro = stages[0]["data"], line["micro_batch"]
    strategy |= {
        "seq_len": line["sequence"],
        "micro_batch_size": micro,
        "world_size": line["gpus"],
        "micro_batch_num": line["global_batch"] // (data * micro),
        "dtype": "fp32",
        "tp_size": stages[0]["tensor"],
        "pp_size": len(stages),
        "zero_state": 0,
        "enable_sequence_parallel": False,
        "enable_recompute": False,
        "use_fused_norm": False,
        "use_math_sdp": True,
        "use_flash_sdp": False,
    }
    hidden, heads = sizes["hidden"], sizes["heads"]
    model = {
        "model_type": "dense",
        "model_name": "m",
        "hidden_size": hidden,
        "head_num": heads,
        "kv_head_num": heads,
        "head_size": hidden // heads,
        "intermediate_size": 4 * hidden,
        "layer_num": sizes["layers"],
        "vocab_size": sizes["vocabulary"],
        "use_swiglu": False,
    }
    planner = PerfLLM()
    with TemporaryDirectory() as name:
        paths = {}
        for part, document in (("strategy", strategy), ("model", model), ("system", system)):
            paths[part] = Path(name) / f"{part}.json"
            paths[part].write_text(json.dumps(document))
        planner.configure(
            strategy_config=StrategyConfig.init_from_config_file(str(paths["strategy"])),
            model_config=ModelConfig.init_from_config_file(str(paths["model"])),
            system_config=SystemConfig.init_from_config_file(str(paths["system"])),
        )
        planner.run_estimate()
        cost = planner.analysis_cost()
    amount, unit = _found(getattr(cost, "data", cost), "duration_time_per_iter").split()
    return float(amount) * {"us": 1e-6, "ms": 1e-3, "s": 1.0}[unit]


def _found(tree: Any, key: str) -> Any:
    """The first value of this name in a tree of dictionaries."""
    if not isinstance(tree, dict):
        return None
    found = (tree[key] if key in tree else _found(part, key) for part in (tree, *tree.values()))
    return next((one for one in found if one is not None), None)


PEERS: dict[str, Callable[[Path, Sizes], float]] = {
    "calculon": calculon,
    "llm-analysis": llm_analysis,
    "simumax": simumax,
}


def main() -> None:
    folder, peers = Path(sys.argv[1]), Path(sys.argv[2])
    logging.disable(logging.CRITICAL)
    lines = {one["id"]: one for one in map(json.loads, (folder / "plans.jsonl").open())}
    measured = Measured(folder)
    plans = [plan for plan in measured.plans if plan.id.startswith("clariden/")]
    tf32 = [plan.model_copy(update={"precision": "tf32"}) for plan in plans]
    left = {
        plan.id: error
        for part in groups(plans, alike).values()
        for plan, error in zip(part, measured.fitted_without(measured.plans, part), strict=True)
    }
    everything = {
        "with a profile: schedmate, its cluster, model and kind left out": [
            left[plan.id] for plan in plans
        ],
        "with a profile: Sailor": [SAILOR[plan.id[9:]] / 100 for plan in plans],
        "with a profile: layers' times added up": [
            naive(measured.tables, plan) / measured.seconds[plan.id] - 1 for plan in plans
        ],
        "datasheet: schedmate": measured.errors(tf32, Tables()),
    }
    constants = calibration()["iteration"]
    kept = dict(constants)
    constants.update(dict.fromkeys((*FITTED, "contended_weight"), 0.0), message_factor=1.0)
    everything["datasheet: schedmate, without what was fitted to plans"] = measured.errors(
        tf32, Tables()
    )
    constants.update(kept)
    for name, predict in PEERS.items():
        errors = []
        for plan in plans:
            with contextlib.redirect_stdout(io.StringIO()):
                seconds = predict(peers / name, lines[plan.id])
            errors.append(seconds / measured.seconds[plan.id] - 1)
        everything[f"datasheet: {name}"] = errors
    everything["datasheet: half of the peak"] = [
        6
        * find_model(plan.model).parameters()
        * plan.global_batch
        * plan.sequence
        / (plan.gpus * TFLOPS / 2 * 1e12)
        / measured.seconds[plan.id]
        - 1
        for plan in plans
    ]
    rows = []
    for how, errors in everything.items():
        of_models: dict[str, list[float]] = {}
        for plan, error in zip(plans, errors, strict=True):
            of_models.setdefault(plan.model, []).append(error)
        by_model = {model: summary(part)["mean"] for model, part in of_models.items()}
        rows.append({"by": how, **summary(errors), **by_model})
    record("planner_peers", rows)


if __name__ == "__main__":
    main()
