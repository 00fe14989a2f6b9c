"""Lines to templates, quickly, and what is kept about them."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedmate.logparse.templates import Templates, TemplateStore, mask


@pytest.mark.parametrize(
    ("line", "template"),
    [
        ("step 17/1000 loss 0.25 lr 1e-4", "step <num>/<num> loss <num> lr <num>"),
        ("2024-10-10 12:34:56,789 INFO saved", "<time> INFO saved"),
        ("loading /data/x/shard-0001.tar", "loading <path>"),
        ("connect to 10.0.0.7:29500 failed", "connect to <host> failed"),
        ("NVRM: Xid (PCI:0000:3b:00): 79, pid=12", "NVRM: Xid (PCI:<host>): <num>, pid=<num>"),
        ("at 0x7ffdeadbeef", "at <hex>"),
        ("commit 9e64edec2ad1", "commit <hex>"),
        ("loss: nan", "loss: <num>"),
        ("job 123e4567-e89b-12d3-a456-426614174000", "job <id>"),
        ("see https://x.org/a?b=1 now", "see <url> now"),
        (" 42%|####      | 42/100 [00:10<00:14,  4.1it/s]", None),
    ],
)
def test_what_changes_is_masked(line: str, template: str | None) -> None:
    if template is None:
        template = mask(" 97%|######### | 97/100 [00:23<00:01,  3.9it/s]")
    assert mask(line) == template


def test_words_are_kept() -> None:
    line = "RuntimeError: CUDA error: device-side assert triggered (faced, added, deadbeef)"

    assert mask(line) == line


def test_lines_that_differ_in_numbers_share_a_template() -> None:
    templates = Templates()
    data = b"".join(b"[rank%d]: step %d loss %.3f\n" % (n % 8, n, 1 / (n + 1)) for n in range(500))
    numbers = templates.numbers(data + b"done\n")

    assert list(numbers) == [0] * 500 + [1]
    assert templates.texts == ["step <num> loss <num>", "done"]
    assert templates.examples == [b"[rank0]: step 0 loss 1.000", b"done"]


@given(st.lists(st.text(alphabet="ab0129 .:/-%|\r", max_size=30)))
def test_many_lines_at_once_are_the_lines_one_by_one(lines: list[str]) -> None:
    at_once, one_by_one = Templates(), Templates()
    data = "".join(line + "\n" for line in lines).encode()

    numbers = at_once.numbers(data) if lines else []

    assert [at_once.texts[n] for n in numbers] == [
        one_by_one.texts[one_by_one.number(line.encode())] for line in lines
    ]


def test_noise_does_not_grow_without_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("schedmate.logparse.templates.MAX_TEMPLATES", 50)
    monkeypatch.setattr("schedmate.logparse.templates.MAX_SHAPES", 20)
    templates = Templates()
    words = [bytes([97 + n // 26, 97 + n % 26]) for n in range(300)]
    numbers = templates.numbers(b"\n".join(words) + b"\n")

    assert len(numbers) == 300
    assert len(templates) == 50
    assert set(numbers[50:]) == {49}


def test_values_outlive_the_process(tmp_path: Path) -> None:
    path = tmp_path / "cache" / "templates.sqlite"
    store = TemplateStore(path)
    store.put("class/1", {"step <num>": "progress", "it's": {"a": [1]}})
    store.close()

    again = TemplateStore(path)
    assert again.get("class/1", "step <num>") == "progress"
    assert again.get("class/1", "it's") == {"a": [1]}
    assert again.get("class/2", "step <num>") is None
    again.close()


def test_a_damaged_cache_is_done_without(tmp_path: Path) -> None:
    path = tmp_path / "templates.sqlite"
    path.write_bytes(b"this is no database" * 100)
    store = TemplateStore(path)
    store.put("class/1", {"a": "progress"})

    assert store.get("class/1", "a") == "progress"
    with pytest.raises(sqlite3.DatabaseError):
        sqlite3.connect(path).execute("SELECT * FROM template_value")
