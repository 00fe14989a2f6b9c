"""What serving a model takes, and the jobs an hour that follow from the ledger."""

from __future__ import annotations

import json
import shlex
import time
from dataclasses import replace

import pytest
from cli_runner import Cli

from schedmate.llm.serving import ModelSize, Reading, command, fit, jobs_an_hour, model_size
from schedmate.llm.store import Call, Store
from schedmate.settings import data_dir

GB = 1e9


def test_memory_follows_from_published_sizes() -> None:
    model = model_size("Qwen/Qwen2.5-7B-Instruct")
    assert model.published
    # 28 layers, 4 heads, 128 wide, keys and values, two bytes
    assert model.cache_per_token == 28 * 4 * 128 * 2 * 2
    room = fit(model, 80 * GB, 1, 32_768)
    assert room.weights == pytest.approx(15.24 * GB)
    assert room.readings == int((0.9 * 80 * GB - 2 * GB - 15.24 * GB) / (57_344 * 32_768))
    assert model_size("Qwen/Qwen2.5-7B-Instruct-GPTQ-Int8").weights < 0.6 * model.weights
    assert model_size("Qwen/Qwen2.5-7B-Instruct-AWQ").weights < 0.3 * model.weights


@pytest.mark.parametrize(
    ("name", "parser", "published"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", "llama3_json", True),
        ("Qwen/Qwen3-Coder-30B-A3B-Instruct", "qwen3_coder", True),
        ("someone/else-13b-chat", None, False),
        ("mistralai/Mistral-7B-Instruct-v0.3", "mistral", True),
    ],
)
def test_families_have_their_parsers(name: str, parser: str | None, published: bool) -> None:
    model = model_size(name)
    assert (model.parser, model.published) == (parser, published)
    words = command(model, 2, 4096)
    assert ("--tool-call-parser" in words) is (parser is not None)
    assert words[-2:] == ["--tensor-parallel-size", "2"]


def test_a_guess_is_near_the_published_size() -> None:
    known = model_size("Llama-3.1-8B").cache_per_token
    guessed = model_size("unheard-of-8b").cache_per_token
    assert 0.5 < guessed / known < 2


def test_more_memory_or_fewer_tokens_never_carry_fewer_jobs() -> None:
    model = model_size("Qwen2.5-7B")
    few, many = (Reading(5, prompt, prompt / 2, 500) for prompt in (8_000, 20_000))
    rates = [
        jobs_an_hour(model, reading, fit(model, memory * GB, 1, 32_768), 1, 300e12, 2e12)
        for reading in (many, few)
        for memory in (16, 24, 80)
    ]
    assert rates[0] == 0.0, "the weights alone fill 16 GB"
    assert rates[1] < rates[2]
    assert rates[3:] >= rates[:3]
    assert rates[5] > rates[2]


@pytest.mark.parametrize("name", ["Qwen/Qwen3-30B-A3B", "Qwen/Qwen3-Coder-30B-A3B-Instruct"])
def test_of_a_mixture_a_token_uses_only_some_experts(name: str) -> None:
    model = model_size(name)
    assert (model.parameters, model.active) == (30.5e9, 3.3e9)
    assert model.weights == 61 * GB, "all of it is in memory"
    assert model.read_by(2) == pytest.approx(2 * 3.3 * 2 * GB)
    assert model.read_by(64) == model.weights, "many tokens together use every expert"
    dense = replace(model, active=model.parameters)
    room = fit(model, 80 * GB, 2, 32_768)
    prompts, replies = Reading(1, 10_000, 0, 0), Reading(1, 0, 0, 1000)

    def rate(one: ModelSize, reading: Reading, readings: int) -> float:
        return jobs_an_hour(one, reading, replace(room, readings=readings), 2, 300e12, 2e12)

    assert rate(model, prompts, 8) == pytest.approx(rate(dense, prompts, 8) * 30.5 / 3.3)
    assert rate(model, replies, 1) == pytest.approx(rate(dense, replies, 1) * 30.5 / 3.3)
    assert rate(model, replies, 64) == pytest.approx(rate(dense, replies, 64))


def test_the_printed_command_can_be_pasted(cli: Cli) -> None:
    result = cli("llm", "serve-command", "Qwen/Qwen2.5-7B-Instruct", "--gpu", "H100")
    assert result.code == 0
    words = shlex.split(result.out.splitlines()[0])
    assert words[:3] == ["vllm", "serve", "Qwen/Qwen2.5-7B-Instruct"]
    assert words[words.index("--tool-call-parser") + 1] == "hermes"
    assert "--enable-prefix-caching" in words
    assert all(line.startswith("#") for line in result.out.splitlines()[1:])


def test_gpus_have_to_divide_the_attention_heads(cli: Cli) -> None:
    for model, gpus in (("Qwen/Qwen2.5-72B-Instruct", "3"), ("Qwen/Qwen2.5-7B-Instruct", "8")):
        refused = cli("llm", "serve-command", model, "--gpu", "A100-80", "--gpus", gpus)
        assert refused.code == 2
        assert "attention heads" in refused.err
    assert cli("llm", "serve-command", "Qwen2.5-7B", "--gpu", "A100-80", "--gpus", "4").code == 0
    unknown = cli("llm", "serve-command", "else-13b", "--gpu", "A100-80", "--gpus", "3")
    assert "heads are not known" in unknown.out


def test_what_does_not_fit_says_what_would(cli: Cli) -> None:
    result = cli("llm", "serve-command", "Llama-3.1-70B", "--gpu", "A100-80", "--json")
    found = json.loads(result.out)
    assert found["fits"] is False
    assert any("4 of these GPUs would do" in note for note in found["notes"])


def test_a_name_without_a_size_is_one_sentence(cli: Cli) -> None:
    result = cli("llm", "serve-command", "gpt-what", "--gpu", "H100")
    assert result.code == 3
    assert "how large the model is" in result.err
    given = cli("llm", "serve-command", "gpt-what", "--gpu", "H100", "--parameters", "7")
    assert given.code == 0


def test_capacity_counts_what_readings_took(cli: Cli) -> None:
    nothing = cli("llm", "capacity", "Qwen2.5-7B", "--gpu", "H100")
    assert nothing.code == 3
    store = Store(data_dir())
    for job in ("a", "b"):
        for purpose, sent in (("extract", 1), ("extract", 1), ("failure", 1), ("extract", 0)):
            store.add(
                Call(
                    time.time(),
                    purpose,
                    job,
                    "http://x",
                    "m",
                    "ok",
                    6000,
                    300,
                    4000,
                    2.0,
                    sent,
                    sent,
                )
            )
    store.close()
    found = json.loads(cli("llm", "capacity", "Qwen2.5-7B", "--gpu", "H100", "--json").out)
    assert found["jobs_read"] == 2
    assert found["a_job"] == {"calls": 2.0, "prompt": 12_000, "cached": 8_000, "reply": 600}
    assert found["cached_share"] == pytest.approx(2 / 3)
    assert found["jobs_an_hour_one_at_a_time"] == pytest.approx(3600 / 4)
    assert found["jobs_an_hour_estimate"] > 900
    shown = cli("llm", "capacity", "Qwen2.5-7B", "--gpu", "H100").out
    assert "67% from the server's cache" in shown
    assert "an estimate from its datasheet" in shown
    assert "at most" not in shown
