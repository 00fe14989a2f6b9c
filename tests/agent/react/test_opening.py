"""What of a repository is in the first message: the claims, scripts first, and no waste."""

from __future__ import annotations

from pathlib import Path

from schedmate.agent.react.opening import MAX_CHARACTERS, opening
from schedmate.tools import RepoFiles

PROGRAM = '''# Copyright of somebody
"""What this program is about."""
import torch
from data import load

class Recipe:
    """Says how."""

    width = 512

    def rate(self):
        # a comment
        return 0.1

def helper():
    return "never used"

run(load("c4"), Recipe())
'''


def test_scripts_come_first_and_waste_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    (tmp_path / "go.job").write_text("#!/bin/bash\n#SBATCH --nodes=2\n# a note\npython train.py\n")
    (tmp_path / "README.md").write_text("Trains on planted_data.\n")
    text = opening(RepoFiles(tmp_path), "train.py", "sbatch go.job", ["README.md"])
    assert text.startswith("go.job (4 lines):\n1| #!/bin/bash\n2| #SBATCH --nodes=2\n4| python")
    assert '18| run(load("c4"), Recipe())' in text
    for waste in ("Copyright", "about", "import", "Says how", "a comment", "planted", "a note"):
        assert waste not in text


def test_the_surroundings_of_claims_are_shown_with_what_holds_them(tmp_path: Path) -> None:
    """Also far down in a long file, in a class that the top level does not use."""
    filler = "".join(f"step_{number}(0)\n" for number in range(2000))
    body = "".join(f"    field_{number} = {number}\n" for number in range(100))
    (tmp_path / "train.py").write_text(filler + "class Wide:\n" + body + "run()\n")
    files = RepoFiles(tmp_path)
    text = opening(files, "train.py", "python train.py", [], [("train.py", 2051)])
    assert "2001| class Wide:" in text
    assert [f"{2051 + around}|     field_" in text for around in (-5, -4, 0, 4, 5)] == [
        False, True, True, True, False
    ]  # fmt: skip
    assert "[lines 2056-2102: class Wide, not shown, see file_read]" in text
    assert len(text) < MAX_CHARACTERS
