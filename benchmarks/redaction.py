"""What redaction takes out of real training code, and how fast.

    python benchmarks/redaction.py [--repos DIR] [--show]
    python benchmarks/redaction.py --gitleaks gitleaks.toml [--show]
    python benchmarks/redaction.py --probes [--show]

Public repositories hold next to no secrets, so almost every line that changes is one too many; what
has to be found is in tests/llm/test_redact.py. DIR holds plain checkouts; without it the fixture
repositories are read. `--show` prints each changed line.

With the rules of gitleaks (github.com/gitleaks/gitleaks, config/gitleaks.toml, MIT licence) texts
are drawn that each rule takes for a secret, and those counted that still hold it after redaction;
`--show` prints one for each rule. Most of what is left are values beside the name of a service that
have few digits: code is full of such values, so they are not taken for keys.

`--probes` counts the texts of redaction_probes.yaml that still hold their secret afterwards. They
were written without regard to the rules; the rules were then made better on one half of them (by a
hash of the text), of which `--show` prints those that leak, and not on the other. detect-secrets,
with its default detectors, is the baseline: a secret that it reports counts as taken out.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import math
import random
import re
import tempfile
import time
import tomllib
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from _record import record
from _samples import sample

from schedmate.agent.react.sources import READABLE_SUFFIXES
from schedmate.llm.redact import PLACEHOLDER, Redactor

FIXTURES = Path(__file__).parent.parent / "tests" / "fixtures" / "repos"
MOST_BYTES = 2_000_000
DRAWN = 20
"""Examples a rule of gitleaks."""


def texts(repos: Path) -> Iterator[tuple[Path, str]]:
    """Code, configuration, scripts and documents below a directory, links left out."""
    for path in sorted(repos.rglob("*")):
        if path.suffix.lower() not in READABLE_SUFFIXES | {".md", ".txt"} or path.is_symlink():
            continue
        if path.is_file() and path.stat().st_size <= MOST_BYTES:
            yield path, path.read_text("utf-8", errors="replace")


def entropy(text: str) -> float:
    """Shannon's, of the characters [bits]."""
    shares = [count / len(text) for count in Counter(text).values()]
    return -sum(share * math.log2(share) for share in shares)


def drawn_secrets(rule: dict[str, Any], random_numbers: random.Random) -> Iterator[tuple[str, str]]:
    """Texts that a rule of gitleaks takes, and the secret in each."""
    # in its dialect flags may stand anywhere, and hold from there on
    pattern = re.sub(r"(?<!^)\(\?i\)(.*)", r"(?i:\1)", rule["regex"].replace(r"\z", r"\Z"))
    try:
        compiled = re.compile(pattern)
    except re.error:
        return
    for _ in range(DRAWN * 20):
        text = sample(pattern, random_numbers)
        match = compiled.search(text)
        if match and any(word in text.lower() for word in rule["keywords"]):
            secret = next((group for group in match.groups() if group), match[0])
            if entropy(secret) >= rule.get("entropy", 0):
                yield text, secret


def against(path: Path, *, show: bool) -> None:
    """Measure how much of what gitleaks finds is taken out, and record it."""
    warnings.simplefilter("ignore", FutureWarning)
    random_numbers = random.Random(1)
    shares: dict[str, float] = {}
    for rule in tomllib.loads(path.read_text())["rules"]:
        if "regex" not in rule:
            continue
        texts = list(itertools.islice(drawn_secrets(rule, random_numbers), DRAWN))
        left = [text for text, secret in texts if secret in Redactor().redact(f"\n{text}\n")]
        if texts:
            shares[rule["id"]] = 1 - len(left) / len(texts)
        if show and left:
            print(f"{rule['id']}: {left[0][:120]!r}")
    found = list(shares.values())
    rows: list[dict[str, Any]] = [
        {"what": "rules that examples could be drawn for", "value": len(found)},
        {"what": "of these, all examples taken out", "value": sum(one == 1 for one in found)},
        {"what": "of these, at least half", "value": sum(one >= 0.5 for one in found)},
        {"what": "examples taken out, mean over rules", "value": round(sum(found) / len(found), 3)},
    ]
    record("redaction_gitleaks", rows, examples_a_rule=DRAWN)


PROBES = Path(__file__).with_name("redaction_probes.yaml")


def probes(*, show: bool) -> None:
    """Measure which share of the probes still holds its secret, and record it."""
    import yaml

    rows: list[dict[str, Any]] = []
    total: dict[str, Counter[str]] = {"seen while made": Counter(), "held out": Counter()}
    for group, texts_of_group in yaml.safe_load(PROBES.read_text("utf-8")).items():
        counts: Counter[str] = Counter()
        for probe in texts_of_group:
            text, secret = probe["text"], str(probe["secret"])
            seen = hashlib.sha256(text.encode()).digest()[0] % 2
            half = "seen while made" if seen else "held out"
            redacted = Redactor().redact(text)
            leaks = {
                "probes": True,
                "leak": secret in redacted,
                "leak_baseline": _unseen(text, secret, group),
            }
            counts.update(name for name, found in leaks.items() if found)
            total[half].update(name for name, found in leaks.items() if found)
            if show and seen and secret in redacted:
                print(f"{group}: {redacted!r}")
        rows.append({"what": group, **_shares(counts)})
    rows += [{"what": f"all, {half}", **_shares(counts)} for half, counts in total.items()]
    record("redaction_probes", rows)


def _shares(counts: Counter[str]) -> dict[str, Any]:
    return {
        "probes": counts["probes"],
        "leak": round(counts["leak"] / counts["probes"], 3),
        "leak with detect-secrets": round(counts["leak_baseline"] / counts["probes"], 3),
    }


_SUFFIXES = {"python": ".py", "yaml": ".yaml", "json": ".json", "shell": ".sh"}
"""Of the file that a group's probes are put into, by its first word."""


def _unseen(text: str, secret: str, group: str) -> bool:
    """Whether detect-secrets reports nothing that holds the secret, or is part of it."""
    from detect_secrets.core.scan import scan_file
    from detect_secrets.settings import default_settings

    suffix = _SUFFIXES.get(re.split(r"\W", group)[0], ".txt")
    with default_settings(), tempfile.NamedTemporaryFile("w", suffix=suffix) as file:
        file.write(text)
        file.flush()
        values = [found.secret_value for found in scan_file(file.name)]
    return not any(value and (secret in value or value in secret) for value in values)


def main() -> None:
    """Measure and record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repos", type=Path)
    parser.add_argument("--gitleaks", type=Path)
    parser.add_argument("--probes", action="store_true")
    parser.add_argument("--show", action="store_true")
    options = parser.parse_args()
    if options.gitleaks is not None:
        against(options.gitleaks, show=options.show)
        return
    if options.probes:
        probes(show=options.show)
        return
    roots = options.repos.iterdir() if options.repos else FIXTURES.glob("*/*")
    changed: Counter[str] = Counter()
    files = lines = characters = 0
    seconds = 0.0
    for path, text in texts(options.repos or FIXTURES):
        redactor = Redactor()
        began = time.perf_counter()
        redacted = redactor.redact(text)
        seconds += time.perf_counter() - began
        files, lines, characters = files + 1, lines + text.count("\n"), characters + len(text)
        for before, after in zip(text.split("\n"), redacted.split("\n"), strict=True):
            found = PLACEHOLDER.search(after)
            if before != after and found:
                changed[found[0].split(":")[1]] += 1
                if options.show:
                    print(f"{path.name}: {before.strip()[:160]}")
    rows: list[dict[str, Any]] = [
        {"rule": name, "lines changed": count, "in a million": round(count / lines * 1e6, 2)}
        for name, count in changed.most_common()
    ]
    total = changed.total()
    rows.append(
        {"rule": "all", "lines changed": total, "in a million": round(total / lines * 1e6, 2)}
    )
    record(
        "redaction_real" if options.repos else "redaction",
        rows,
        files=files,
        lines=lines,
        megabytes_per_s=round(characters / seconds / 1e6, 1),
        repositories=sum(1 for one in roots if one.is_dir()),
    )


if __name__ == "__main__":
    main()
