"""Settings among records of which a program makes a table."""

from __future__ import annotations

from schedmate.agent.fields.settings import all_settings
from schedmate.agent.interp.trace import Settings, Trace
from schedmate.agent.values import Value, lifted


def test_the_command_line_is_seen_beside_a_table_of_records() -> None:
    fields = {f"field_{number}": "" for number in range(20)}
    table = [
        Settings("WeightsConfig", lifted({**fields, "url": f"https://x/{number}"}), "dataclass")
        for number in range(1000)
    ]
    command = Settings("arguments", Value({"epochs": Value(150)}), "arguments")

    found = all_settings(Trace(settings=[*table, command]))

    assert any(setting.path == ("epochs",) and setting.value.data == 150 for setting in found)
    urls = [setting.value.data for setting in found if setting.path == ("url",)]
    assert urls[0] == "https://x/999"
    assert "https://x/0" not in urls
