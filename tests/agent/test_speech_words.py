"""What words of a program's own names count for its domain."""

from __future__ import annotations

from pathlib import Path

from schedmate.agent.static import extract

_PROGRAM = """
import torch

class Text2SpeechDecoder(torch.nn.Module):
    pass

def load_language_list(path):
    return []

def make_waveform(model):
    return model

load_language_list("languages.json")
model = make_waveform(Text2SpeechDecoder())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(3):
    for batch in loader:
        model(batch).backward()
        optimizer.step()
"""


def test_a_list_of_languages_and_text_turned_into_speech_are_about_speech(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text(_PROGRAM)
    found = extract(tmp_path, "python main.py").metadata
    assert found.get("model_config.task_type") == "Audio"
