"""How near does the planner come to the best plan, how fast is it, and what does pruning cost?

    python benchmarks/parallel_plans.py [--clusters 6]

Models of Table 2 of the Arena paper on 4 and 8 GPUs of its Table 1, bf16, sequence 1,024; operators
in so few clusters that all plans can be priced. No time here was measured on a GPU: plans are
compared under the same end-to-end model that parallel_times.py checks against measurements.

parallel_plans    best plan of an exhaustive search / proxy plan, in iteration time: mean, worst,
                  share of cases where they are the same. `published`: the proxy has the
                  least computation bias, then the least communication (paper: 93.4 % of best,
                  the same in 86.5 %). `priced`: the fastest plan of the frontier.
parallel_pruning  how many times fewer plans are searched under the three rules of section 3.6, and
                  what the best of those reaches (paper: 5.48 times, 96.2 %).
parallel_speed    time to plan a 27B mixture of experts for 64 GPUs of each of four types.
"""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from itertools import product
from statistics import median

from _exhaustive import search_exhaustively
from _record import record

from schedmate.base.errors import InputError
from schedmate.schedulers.parallelism.models import find_model
from schedmate.schedulers.parallelism.network import Network
from schedmate.schedulers.parallelism.planner import (
    Planner,
    PlanRequest,
    Pruning,
)
from schedmate.schedulers.parallelism.profile import Tables

MODELS = (
    ("gpt-0.76b", 128),
    ("gpt-1.3b", 128),
    ("gpt-2.6b", 256),
    ("moe-0.69b", 256),
    ("moe-1.3b", 256),
    ("moe-2.4b", 512),
    ("wide-resnet-0.5b", 256),
    ("wide-resnet-1b", 256),
    ("wide-resnet-2b", 512),
)
GPUS = (("A100-40", 4), ("A40", 2), ("A10", 2), ("V100-32", 16), ("L20", 16), ("H100-80", 8))
SAME = 1 - 1e-6


def quality(clusters: int) -> None:
    """Proxy plans and pruning against exhaustive search."""
    network = Network(Tables())
    ratios: dict[tuple[str, str], list[float]] = defaultdict(list)
    fewer, kept, none = [], [], 0
    for (name, batch), (gpu, per_node), gpus in product(MODELS, GPUS, (4, 8)):
        request = PlanRequest(find_model(name), gpu, gpus, per_node, batch, 1024, "bf16")
        for how in ("published", "priced"):
            planner = Planner(network, published=how == "published", clusters=clusters)
            try:
                found = planner.plan(request)
            except InputError:
                none += how == "priced"
                continue
            best, priced = search_exhaustively(found.request, planner.predictor, clusters)
            assert best is not None
            ratio = best.iteration_s / found.best.proxy.iteration_s
            for family in (name.rsplit("-", 1)[0], "all"):
                ratios[how, family].append(ratio)
            if how == "priced":
                pruning = Pruning.of(found.best.frontier)
                pruned, searched = search_exhaustively(
                    found.request, planner.predictor, clusters, pruning
                )
                fewer.append(priced / max(1, searched))
                kept.append(best.iteration_s / pruned.iteration_s if pruned else 0.0)
    rows = [
        {
            "proxy": how,
            "model": family,
            "cases": len(found),
            "of the best": f"{sum(found) / len(found):.1%}",
            "worst": f"{min(found):.1%}",
            "the same": f"{sum(one > SAME for one in found) / len(found):.1%}",
        }
        for (how, family), found in ratios.items()
    ]
    record("parallel_plans", rows, clusters=clusters, fits_nowhere=none)
    pruning_row = {
        "cases": len(fewer),
        "times fewer plans, median": f"{median(fewer):.0f}",
        "least": f"{min(fewer):.1f}",
        "of the best": f"{sum(kept) / len(kept):.1%}",
        "worst": f"{min(kept):.1%}",
        "nothing left": sum(one == 0 for one in kept),
    }
    record("parallel_pruning", [pruning_row], clusters=clusters)


def speed() -> None:
    """Planning a large model for many GPUs."""
    rows = []
    for gpu, per_node in (("A100-40", 4), ("A40", 2), ("L20", 16), ("H100-80", 8)):
        request = PlanRequest(find_model("moe-27b"), gpu, 64, per_node, 512, 1024, "bf16")
        times = []
        for _ in range(5):
            start = time.process_time()
            found = Planner(Network(Tables())).plan(request)
            times.append(time.process_time() - start)
        best = found.best.proxy
        rows.append(
            {
                "GPUs": f"64 {gpu}",
                "CPU s": f"{median(times):.2f}",
                "stages": found.best.stages,
                "samples/s": f"{best.samples_per_s:.1f}",
            }
        )
    record("parallel_speed", rows, model="moe-27b, global batch 512, new planner each time")


def main() -> None:
    """Quality, pruning, speed."""
    clusters = int(sys.argv[sys.argv.index("--clusters") + 1]) if "--clusters" in sys.argv else 6
    quality(clusters)
    speed()


if __name__ == "__main__":
    main()
