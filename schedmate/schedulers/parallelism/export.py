"""A plan as the launch arguments of a training framework."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable

from schedmate.base.errors import InputError
from schedmate.schedulers.parallelism.models import ModelSpec
from schedmate.schedulers.parallelism.plan import Plan

Arguments = list[str]


def launch_arguments(plan: Plan, framework: str) -> str:
    """The launch arguments of a plan, one option a line, with a backslash at line ends.

    Raises `InputError`, with the reason, if the framework cannot run such a plan.
    """
    spec, _ = plan.spec()
    if spec.kind != "transformer" or not spec.causal:
        raise InputError(
            f"{spec.name} is not a decoder-only transformer: launch arguments exist only for those"
        )
    if plan.gpus % min(plan.gpus, plan.gpus_per_node):
        raise InputError(
            f"{plan.title()}: {plan.gpus} GPUs do not fill nodes of {plan.gpus_per_node}, and "
            "launchers start the same number of processes on every node"
        )
    arguments = FRAMEWORKS[framework](plan, spec)
    return " \\\n  ".join(map(shlex.quote, arguments))


def _one_tensor_degree(plan: Plan, framework: str) -> int:
    """The tensor degree of all stages; raises `InputError` where they differ."""
    degrees = {replica.tensor for stage in plan.stages for replica in stage.kinds()}
    types = {replica.gpu_type for stage in plan.stages for replica in stage.kinds()}
    if len(degrees) > 1 or len(types) > 1:
        raise InputError(
            f"{framework} gives every stage the same tensor degree and GPU type, this plan has "
            f"tensor {', '.join(map(str, sorted(degrees)))} on {', '.join(sorted(types))}: plan "
            "with --uniform"
        )
    return degrees.pop()


def _require_even(plan: Plan, framework: str) -> None:
    """Raises `InputError` for stages of unlike numbers of blocks, which only Megatron-LM takes."""
    if _is_uneven(plan):
        blocks = ", ".join(str(stage.layers) for stage in plan.stages)
        raise InputError(
            f"{framework}'s arguments cannot say which layers are in which stage (here {blocks}): "
            "export to megatron, or write an even plan"
        )


def _torchrun(plan: Plan) -> Arguments:
    nodes = -(-plan.gpus // plan.gpus_per_node)
    return [
        "torchrun",
        f"--nnodes={nodes}",
        f"--nproc-per-node={min(plan.gpus, plan.gpus_per_node)}",
    ]


def _sizes(plan: Plan, spec: ModelSpec, tensor: int) -> Arguments:
    """Options of parallelism and model that Megatron-LM and Megatron-DeepSpeed share."""
    return [
        f"--tensor-model-parallel-size={tensor}",
        f"--pipeline-model-parallel-size={len(plan.stages)}",
        f"--num-layers={spec.blocks}",
        f"--hidden-size={spec.hidden}",
        f"--num-attention-heads={spec.heads}",
        f"--ffn-hidden-size={spec.feed_forward}",
    ]


def _batches(plan: Plan, spec: ModelSpec) -> Arguments:
    """Options of sequences and batches that they share."""
    return [
        f"--seq-length={plan.sequence}",
        f"--max-position-embeddings={max(plan.sequence, spec.positions)}",
        f"--micro-batch-size={plan.micro_batch}",
        f"--global-batch-size={plan.global_batch}",
    ]


def _megatron(plan: Plan, spec: ModelSpec) -> Arguments:
    tensor = _one_tensor_degree(plan, "Megatron-LM")
    stages = len(plan.stages)
    flags = [
        *_torchrun(plan),
        "pretrain_gpt.py",
        *_sizes(plan, spec, tensor),
        *_batches(plan, spec),
    ]
    if spec.kv_heads and spec.kv_heads != spec.heads:
        flags += ["--group-query-attention", f"--num-query-groups={spec.kv_heads}"]
    if spec.gated:
        flags.append("--swiglu")
    if spec.norm == "rms":
        flags.append("--normalization=RMSNorm")
    if not spec.positions:
        flags.append("--position-embedding-type=rope")
    if not spec.tied:
        flags.append("--untie-embeddings-and-output-weights")
    if spec.experts:
        flags += [f"--num-experts={spec.experts}", f"--moe-router-topk={spec.top}"]
    if plan.precision in {"fp16", "bf16"}:
        flags.append(f"--{plan.precision}")
    if plan.sharding != "none":
        flags += _megatron_sharding(plan)
    if plan.recompute == "full":
        flags += [
            "--recompute-granularity=full",
            "--recompute-method=uniform",
            "--recompute-num-layers=1",
        ]
    elif plan.recompute == "selective":
        flags.append("--recompute-granularity=selective")
    if stages > 1 and _is_uneven(plan):
        flags.append(f"--pipeline-model-parallel-layout={_layout(plan)}")
    return flags


def _megatron_sharding(plan: Plan) -> Arguments:
    if plan.sharding == "zero-1":
        return ["--use-distributed-optimizer"]
    if plan.sharding == "zero-3" and len(plan.stages) == 1:
        return ["--use-torch-fsdp2"]
    raise InputError(
        f"Megatron-LM has no {plan.sharding} for this plan: export to deepspeed or fsdp, or plan "
        "with --sharding zero-1"
    )


def _is_uneven(plan: Plan) -> bool:
    """Whether blocks are not the same number in each stage (embedding and head apart)."""
    counts = [stage.layers for stage in plan.stages]
    counts[0] -= 1
    counts[-1] -= 1
    return len(set(counts)) > 1


def _layout(plan: Plan) -> str:
    """The stages as Megatron-LM's layout string: E embedding, t a block, L head and loss."""
    text = []
    last = len(plan.stages) - 1
    for place, stage in enumerate(plan.stages):
        blocks = stage.layers - (place == 0) - (place == last)
        text.append("E" * (place == 0) + "t" * blocks + "L" * (place == last))
    return "|".join(text)


def _deepspeed(plan: Plan, spec: ModelSpec) -> Arguments:
    tensor = _one_tensor_degree(plan, "DeepSpeed")
    _require_even(plan, "DeepSpeed")
    if spec.experts:
        raise InputError(
            f"{spec.name} has experts, which Megatron-DeepSpeed sets in its own code: export to "
            "megatron"
        )
    stage = {"none": 0, "zero-1": 1, "zero-2": 2, "zero-3": 3}[plan.sharding]
    if len(plan.stages) > 1 and stage > 1:
        raise InputError(
            "DeepSpeed's pipeline runs with ZeRO-1 at most: plan with --sharding zero-1"
        )
    config: dict[str, object] = {
        "train_batch_size": plan.global_batch,
        "train_micro_batch_size_per_gpu": plan.micro_batch,
        "gradient_accumulation_steps": plan.micro_batches,
        "zero_optimization": {"stage": stage},
        **({plan.precision: {"enabled": True}} if plan.precision in {"fp16", "bf16"} else {}),
    }
    return [
        "deepspeed",
        f"--num_nodes={-(-plan.gpus // plan.gpus_per_node)}",
        f"--num_gpus={min(plan.gpus, plan.gpus_per_node)}",
        "pretrain_gpt.py",
        *_sizes(plan, spec, tensor),
        *([f"--num-key-value-heads={spec.kv_heads}"] if spec.kv_heads else []),
        *(["--swiglu"] if spec.gated else []),
        *_batches(plan, spec),
        f"--zero-stage={stage}",
        *([f"--{plan.precision}"] if plan.precision in {"fp16", "bf16"} else []),
        *(["--checkpoint-activations"] if plan.recompute == "full" else []),
        "--deepspeed",
        f"--deepspeed_config={json.dumps(config, separators=(',', ':'))}",
    ]


def _torchtitan(plan: Plan, spec: ModelSpec) -> Arguments:
    tensor = _one_tensor_degree(plan, "torchtitan")
    _require_even(plan, "torchtitan")
    staged = len(plan.stages) > 1
    shard = plan.data if plan.sharding != "none" else 1
    flags = [
        *_torchrun(plan),
        "-m",
        "torchtitan.train",
        f"--model.flavor={spec.name}",
        f"--training.seq_len={plan.sequence}",
        f"--training.local_batch_size={plan.micro_batch * (plan.micro_batches if staged else 1)}",
        f"--training.global_batch_size={plan.global_batch}",
        f"--parallelism.tensor_parallel_degree={tensor}",
        f"--parallelism.pipeline_parallel_degree={len(plan.stages)}",
        f"--parallelism.data_parallel_shard_degree={shard}",
        f"--parallelism.data_parallel_replicate_degree={plan.data // shard}",
        f"--activation_checkpoint.mode={plan.recompute}",
    ]
    if len(plan.stages) > 1:
        flags += [
            "--parallelism.pipeline_parallel_schedule=1F1B",
            f"--parallelism.pipeline_parallel_microbatch_size={plan.micro_batch}",
        ]
    return flags


def _fsdp(plan: Plan, spec: ModelSpec) -> Arguments:
    if len(plan.stages) > 1 or _one_tensor_degree(plan, "FSDP") > 1:
        raise InputError(
            "FSDP alone has neither pipeline stages nor tensor parallelism: plan with --sharding "
            "zero-3, or export to torchtitan"
        )
    strategy = {"zero-3": "FULL_SHARD", "none": "NO_SHARD"}.get(plan.sharding, "SHARD_GRAD_OP")
    nodes = -(-plan.gpus // plan.gpus_per_node)
    precision = {"fp16": "fp16", "bf16": "bf16", "fp8": "fp8"}.get(plan.precision, "no")
    return [
        "accelerate",
        "launch",
        "--use_fsdp",
        f"--fsdp_sharding_strategy={strategy}",
        "--fsdp_auto_wrap_policy=TRANSFORMER_BASED_WRAP",
        *(["--fsdp_activation_checkpointing=true"] if plan.recompute == "full" else []),
        f"--mixed_precision={precision}",
        f"--num_machines={nodes}",
        f"--num_processes={plan.gpus}",
        "train.py",
        f"--per_device_train_batch_size={plan.micro_batch}",
        f"--gradient_accumulation_steps={plan.micro_batches}",
        f"--block_size={plan.sequence}",
    ]


FRAMEWORKS: dict[str, Callable[[Plan, ModelSpec], Arguments]] = {
    "megatron": _megatron,
    "deepspeed": _deepspeed,
    "torchtitan": _torchtitan,
    "fsdp": _fsdp,
}
"""What plans can be exported to."""
