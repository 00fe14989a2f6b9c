"""The notebooks of examples/notebooks run from top to bottom, and draw what they say."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))


def test_there_are_two() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["estimate", "simulation"]


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # those of Jupyter are not ours
def test_notebooks_run_and_draw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    why = "needs the extra `notebooks`"
    nbformat = pytest.importorskip("nbformat", reason=why)
    nbclient = pytest.importorskip("nbclient", reason=why)
    for package in ("ipykernel", "matplotlib", "pandas"):
        pytest.importorskip(package, reason=why)
    for name in ("JUPYTER_RUNTIME_DIR", "JUPYTER_DATA_DIR", "IPYTHONDIR", "MPLCONFIGDIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    first, second = (nbformat.read(path, as_version=4) for path in NOTEBOOKS)
    books = [[cell for cell in book.cells if cell.cell_type == "code"] for book in (first, second)]
    assert not any(cell.outputs for cells in books for cell in cells), "outputs are not committed"
    # one kernel for both, which forgets the names of the first
    first.cells += [nbformat.v4.new_code_cell("%reset -f"), *second.cells]
    resources = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(first, timeout=600, resources=resources).execute()
    for cells in books:
        shown = [set(output.data) for cell in cells for output in cell.outputs if "data" in output]
        assert len(shown) == len(cells)
        assert "text/html" in shown[0]  # a data frame
        assert all("image/png" in one for one in shown[1:])
