"""A job goes on from its newest complete checkpoint, never from one that is half written."""

from __future__ import annotations

import json
import os
import struct
import zipfile
from pathlib import Path

import pytest

from schedmate.base.errors import InputError
from schedmate.cluster.recovery.checkpoints import newest_checkpoint, resume_command

OLD = 1_000_000_000.0


def torch_file(path: Path, *, cut: bool = False) -> None:
    """What `torch.save` writes: an archive with its directory at the end."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02}." * 50)
        archive.writestr("archive/data/0", b"\0" * 400)
    if cut:
        path.write_bytes(path.read_bytes()[:-60])


def safetensors(path: Path, *, cut: bool = False) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    header = json.dumps({"w": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + b"\0" * (8 if cut else 16))


def settle(folder: Path) -> None:
    """Make all files old, the later names newer."""
    for number, path in enumerate(sorted(folder.rglob("*"))):
        os.utime(path, (OLD + number, OLD + number))


def hugging_face(folder: Path, step: int, *, state: bool = True, cut: bool = False) -> None:
    place = folder / f"checkpoint-{step}"
    safetensors(place / "model.safetensors", cut=cut)
    torch_file(place / "optimizer.pt")
    if state:
        (place / "trainer_state.json").write_text("{}")


def test_hugging_face(tmp_path: Path) -> None:
    hugging_face(tmp_path, 500)
    hugging_face(tmp_path, 1000)
    hugging_face(tmp_path, 1500, state=False)  # killed while it was written
    hugging_face(tmp_path, 2000, cut=True)
    settle(tmp_path)
    saved = newest_checkpoint(tmp_path)
    assert saved is not None
    assert (saved.layout, saved.step, saved.path.name) == ("Hugging Face", 1000, "checkpoint-1000")
    assert [one.partition(":")[0] for one in saved.passed_over] == [
        "checkpoint-2000",
        "checkpoint-1500",
    ]
    assert "cut off" in saved.passed_over[0]
    assert "trainer_state.json" in saved.passed_over[1]


@pytest.mark.parametrize("present", [True, False])
def test_an_index_names_every_shard(tmp_path: Path, present: bool) -> None:
    hugging_face(tmp_path, 10)
    place = tmp_path / "checkpoint-20"
    (place).mkdir()
    (place / "trainer_state.json").write_text("{}")
    shards = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    (place / "model.safetensors.index.json").write_text(json.dumps({"weight_map": shards}))
    for name in list(shards.values())[: 2 if present else 1]:
        safetensors(place / name)
    settle(tmp_path)
    saved = newest_checkpoint(tmp_path)
    assert saved is not None
    assert saved.step == (20 if present else 10)


def test_megatron_goes_by_its_pointer(tmp_path: Path) -> None:
    for step in (100, 200, 300):
        torch_file(tmp_path / f"iter_{step:07d}" / "mp_rank_00" / "model_optim_rng.pt")
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("200\n")
    settle(tmp_path)
    saved = newest_checkpoint(tmp_path)
    assert saved is not None
    assert (saved.layout, saved.step, saved.load) == ("Megatron", 200, tmp_path)
    torch_file(tmp_path / "iter_0000200" / "mp_rank_00" / "model_optim_rng.pt", cut=True)
    settle(tmp_path)
    saved = newest_checkpoint(tmp_path)
    assert saved is not None
    assert (saved.step, len(saved.passed_over)) == (100, 1)


def test_deepspeed_goes_by_its_pointer(tmp_path: Path) -> None:
    for step in (10, 20):
        torch_file(tmp_path / f"global_step{step}" / "mp_rank_00_model_states.pt")
        torch_file(tmp_path / f"global_step{step}" / "zero_pp_rank_0_mp_rank_00_optim_states.pt")
    (tmp_path / "latest").write_text("global_step10")
    settle(tmp_path)
    saved = newest_checkpoint(tmp_path)
    assert saved is not None
    assert (saved.layout, saved.step, saved.path.name) == ("DeepSpeed", 10, "global_step10")


@pytest.mark.parametrize("text", ["../../etc", "/etc", "", "no such"])
def test_a_pointer_leads_nowhere_else(tmp_path: Path, text: str) -> None:
    (tmp_path / "latest").write_text(text)
    if text == "no such":
        with pytest.raises(InputError, match="not there"):
            newest_checkpoint(tmp_path)
    else:
        assert newest_checkpoint(tmp_path) is None


def test_distributed_torch_needs_its_metadata(tmp_path: Path) -> None:
    for step in (5, 6):
        place = tmp_path / f"step-{step}"
        place.mkdir()
        torch_file(place / "__0_0.distcp")
        torch_file(place / "__1_0.distcp")
        if step == 5:
            (place / ".metadata").write_bytes(b"\x80\x02.")
    settle(tmp_path)
    saved = newest_checkpoint(tmp_path)
    assert saved is not None
    assert (saved.layout, saved.step) == ("torch.distributed.checkpoint", 5)


def test_lightning_and_plain_torch_go_by_time(tmp_path: Path) -> None:
    for name in ("epoch=0-step=100.ckpt", "epoch=1-step=50.ckpt"):
        torch_file(tmp_path / "lightning" / name)
    settle(tmp_path / "lightning")
    saved = newest_checkpoint(tmp_path / "lightning")
    assert saved is not None
    assert (saved.layout, saved.step) == ("Lightning", 50)
    for name in ("ckpt_7.pt", "ckpt_8.pt"):
        torch_file(tmp_path / "torch" / name, cut=name == "ckpt_8.pt")
    settle(tmp_path / "torch")
    saved = newest_checkpoint(tmp_path / "torch")
    assert saved is not None
    assert (saved.layout, saved.path.name) == ("torch", "ckpt_7.pt")


def test_one_that_grows_is_passed_over(tmp_path: Path) -> None:
    torch_file(tmp_path / "a_1.pt")
    settle(tmp_path)
    (tmp_path / "b_2.pt").write_bytes(b"\x80\x02" + b"x" * 100)  # of a format that has no end

    def grows(_seconds: float) -> None:
        with (tmp_path / "b_2.pt").open("ab") as stream:
            stream.write(b"y")

    saved = newest_checkpoint(tmp_path, sleep=grows)
    assert saved is not None
    assert saved.path.name == "a_1.pt"
    assert saved.passed_over == ("b_2.pt: it is still being written",)
    settled = newest_checkpoint(tmp_path, sleep=lambda _seconds: None)
    assert settled is not None
    assert settled.path.name == "b_2.pt"


def test_nothing_is_unpickled(tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return os.system, (f"touch {tmp_path / 'ran'}",)

    import pickle

    (tmp_path / "model_1.pt").write_bytes(pickle.dumps(Bomb()))
    settle(tmp_path)
    assert newest_checkpoint(tmp_path) is not None
    assert not (tmp_path / "ran").exists()


def test_what_has_none(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text("step 1")
    (tmp_path / "runs").mkdir()
    assert newest_checkpoint(tmp_path) is None
    with pytest.raises(InputError, match="not a directory"):
        newest_checkpoint(tmp_path / "missing")
    torch_file(tmp_path / "only_1.pt", cut=True)
    with pytest.raises(InputError, match="no complete checkpoint: only_1.pt"):
        newest_checkpoint(tmp_path, sleep=lambda _seconds: None)


@pytest.mark.parametrize(
    ("command", "expected", "words"),
    [
        ("python t.py", "python t.py --resume_from_checkpoint {path}", "was added"),
        ("python t.py --resume_from_checkpoint old -x", None, "names it now"),
        ("python t.py --load=/old", "python t.py --load={path}", "names it now"),
        ("python t.py --resume", "python t.py --resume", "has to find"),
        ("python t.py --auto-resume", "python t.py --auto-resume", "by itself"),
        ("bash -c 'a \"b c\"'", None, "was added"),
    ],
)
def test_the_command_that_resumes(
    tmp_path: Path, command: str, expected: str | None, words: str
) -> None:
    hugging_face(tmp_path, 5)
    settle(tmp_path)
    saved = newest_checkpoint(tmp_path)
    assert saved is not None
    text, said = resume_command(command, saved)
    if expected is not None:
        assert text == expected.format(path=saved.path)
    assert words in said
    if "added" in words or "now" in words:
        assert str(saved.path) in text
    with pytest.raises(InputError, match="cannot be read"):
        resume_command("python 'unclosed", saved)
