"""Fuzz a target led by coverage, with Atheris (libFuzzer): `make fuzz-coverage`.

Inputs that reach new code are kept in build/fuzz/coverage/TARGET and are where the next run starts;
what fails is written to build/fuzz, to be replayed by `fuzz_run.py --replay`.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
from pathlib import Path

import atheris
from fuzz_mutate import mutate

with atheris.instrument_imports(include=["schedmate"]):
    import schedmate.agent.static
    import schedmate.cli
    import schedmate.logparse.failure
    import schedmate.logparse.progress.tracker  # noqa: F401

from fuzz_run import CASE_S, MEMORY_BYTES
from fuzz_targets import TARGETS, run


def main() -> None:
    """Run until the time is up, or until the first failure, which ends the process with 77."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--failures", type=Path, default=Path("build/fuzz"), metavar="DIR")
    given = parser.parse_args()
    target = TARGETS[given.target]
    corpus = (given.failures / "coverage" / given.target).resolve()
    corpus.mkdir(parents=True, exist_ok=True)
    samples = [one for one in target.samples() if one]
    for number, sample in enumerate(samples[:60]):
        (corpus / f"sample-{number}").write_bytes(sample)
    home = tempfile.mkdtemp()
    os.environ |= {"HOME": home, "XDG_CONFIG_HOME": home, "XDG_DATA_HOME": home}

    def changed(data: bytes, most: int, seed: int) -> bytes:
        # half by bytes, led by what comparisons asked for; half by words and numbers
        if seed % 2:
            return bytes(atheris.Mutate(data, most))
        return mutate(random.Random(seed), [data, *samples[:50]], most)

    arguments = [
        sys.argv[0],
        f"-max_total_time={given.seconds}",
        f"-seed={given.seed + 1}",  # 0 is a random one there
        f"-timeout={3 * CASE_S:.0f}",
        f"-rss_limit_mb={MEMORY_BYTES >> 20}",
        f"-artifact_prefix={given.failures.resolve()}/{given.target}-",
        "-max_len=60000",
        str(corpus),
    ]
    atheris.Setup(
        arguments,
        lambda data: run(target, data, Path(home) / "case"),
        custom_mutator=changed,
    )
    atheris.Fuzz()


if __name__ == "__main__":
    main()
