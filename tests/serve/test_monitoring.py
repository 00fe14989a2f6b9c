"""The alert rules and the Grafana dashboard of examples/monitoring, by Prometheus' own tools."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from schedmate.cluster.metrics import AgentMetrics
from schedmate.cluster.report import Pass
from schedmate.serve.metrics import Metrics

FOLDER = Path(__file__).parent.parent.parent / "examples" / "monitoring"
PROMTOOL = shutil.which("promtool")
needs_promtool = pytest.mark.skipif(
    PROMTOOL is None, reason="no promtool; Debian's package prometheus has it"
)


def exposed() -> set[str]:
    """The names of all series that the service has."""
    metrics = Metrics()
    metrics.requests.labels("/", "GET", 200).inc()
    metrics.latency.labels("/").observe(1)
    metrics.refused.labels("rate").inc()
    metrics.verdicts.labels("script").inc()
    agent = AgentMetrics("127.0.0.1:0")
    agent.seen(Pass(cluster="a", time=1.0))
    text = metrics.show({"proposed": 1}, 40, {"ok": 1}) + generate_latest(agent.registry)
    families = text_string_to_metric_families(text.decode())
    return {sample.name for family in families for sample in family.samples} | {"up"}


def expressions() -> list[str]:
    rules = yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"][0]["rules"]
    panels = json.loads((FOLDER / "grafana.json").read_text())["panels"]
    return [rule["expr"] for rule in rules] + [
        target["expr"] for panel in panels for target in panel["targets"]
    ]


def test_every_rule_and_panel_asks_for_what_there_is() -> None:
    for expression in expressions():
        named = set(re.findall(r"\b(?:schedmate_\w+|up)\b(?=[{\[ ]|$|\))", expression))
        assert named, expression
        assert named <= exposed(), expression


def test_every_alert_is_tested() -> None:
    rules = yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"][0]["rules"]
    tests = (FOLDER / "alerts_test.yml").read_text()
    assert all(rule["alert"] in tests for rule in rules)


def promtool(*arguments: str, text: str | None = None) -> None:
    assert PROMTOOL is not None
    done = subprocess.run([PROMTOOL, *arguments], input=text, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.live
@needs_promtool
def test_prometheus_takes_the_configuration_and_the_rules() -> None:
    promtool("check", "config", str(FOLDER / "prometheus.yml"))
    promtool("test", "rules", str(FOLDER / "alerts_test.yml"))


@pytest.mark.live
@needs_promtool
def test_prometheus_finds_nothing_wrong_with_the_metrics() -> None:
    metrics = Metrics()
    metrics.requests.labels("/", "GET", 200).inc()
    promtool("check", "metrics", text=metrics.show({"proposed": 1}, 40).decode())


@pytest.mark.live
@needs_promtool
def test_prometheus_can_parse_every_panel(tmp_path: Path) -> None:
    rules = [{"record": f"panel:{n}", "expr": one} for n, one in enumerate(expressions())]
    path = tmp_path / "panels.yml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    promtool("check", "rules", str(path))
