"""The threshold that an embedder needs, from the labelled set."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import pytest
from cli_runner import Cli
from history_jobs import SmallEmbedder
from numpy.typing import NDArray

from schedmate.retrieval.embedders import UNMEASURED, embed_ngrams, load_embedder, unit_vectors
from schedmate.retrieval.similarity import ACCEPTED_MISSES, calibrate, labelled_queries


class Narrow:
    """N-grams with something in common added: the same order of nearness, larger cosines, as
    language models give them."""

    id = "narrow"
    threshold = UNMEASURED

    def __init__(self, common: float) -> None:
        self.dim = 257
        self._common = common

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        rows = embed_ngrams(texts, 256)
        return unit_vectors(np.hstack([rows, np.full((len(texts), 1), self._common)]))


def test_the_labelled_set_is_well_formed() -> None:
    queries = labelled_queries()
    assert len(queries) > 150
    for query in queries:
        assert query.kind in ("spelling", "alias", "variant")
        assert query.right not in query.wrong
        models = {miss[1] != query.right[1] for miss in query.wrong}
        assert models == {True, False}, f"{query.asked} lacks near misses of either kind"


def test_the_threshold_follows_the_embedder() -> None:
    """Larger cosines all over need a higher threshold, which lets the same pairs through."""
    wide, narrow = calibrate(Narrow(0.0)), calibrate(Narrow(2.0))
    # with c added to vectors of length 1, a cosine s becomes (s + c^2) / (1 + c^2)
    assert narrow.threshold == pytest.approx((wide.threshold + 4) / 5, abs=2e-3)
    assert narrow.same_spelt_otherwise == pytest.approx(wide.same_spelt_otherwise, abs=0.05)


def test_it_lets_little_through_that_it_was_not_chosen_on() -> None:
    found = calibrate(load_embedder())
    assert max(found.other_model, found.other_dataset) < 3 * ACCEPTED_MISSES
    assert found.same_spelt_otherwise > 0.5


def test_an_embedder_that_knows_nothing_gets_a_threshold_that_says_so() -> None:
    found = calibrate(SmallEmbedder(dim=64))
    assert found.same_named_otherwise < 0.1
    assert found.other_model < 3 * ACCEPTED_MISSES


def test_a_given_threshold_is_checked() -> None:
    embedder = load_embedder()
    loose = calibrate(embedder, 0.5)
    assert loose.threshold == 0.5
    assert loose.other_model > 0.3
    assert loose.same_spelt_otherwise > calibrate(embedder).same_spelt_otherwise


def test_the_command(cli: Cli) -> None:
    shown = cli("history", "calibrate")
    document = json.loads(cli("history", "calibrate", "--json").out)
    assert document.pop("schema") == "schedmate.calibration/v1"
    assert shown.code == 0
    assert shown.out == f"threshold = {document['threshold']}\n"
    assert load_embedder().id in shown.err
    assert "near misses" in shown.err
