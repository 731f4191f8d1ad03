"""Near-copies of a text are found, and never judge what was calibrated on the original."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flashrt.host.copies import normal
from flashrt.host.corpus import Corpus, TextDocument, folder_corpus
from flashrt.host.frames import text_frames
from flashrt_runtime.reason import Reason, Refusal
from tests.conftest import WORDS

Edit = Callable[[str], str]


def prose(seed: int, words: int = 400) -> str:
    return " ".join(random.Random(seed).choices(WORDS, k=words))


def corpus(*texts: str) -> Corpus:
    return Corpus("t", "t", tuple(TextDocument(f"d{i}", "a", t) for i, t in enumerate(texts)))


@pytest.mark.parametrize(
    "edit",
    [lambda t: t + "\n", str.upper, lambda t: t.replace(" ", ",\r\n"), lambda t: "\ufeff" + t],
)
def test_another_form_of_a_text_is_left_out(tmp_path: Path, edit: Edit) -> None:
    (tmp_path / "a.txt").write_text(prose(1))
    (tmp_path / "b.txt").write_text(edit(prose(1)))
    (tmp_path / "c.txt").write_text(prose(2))
    assert [d.id for d in folder_corpus(tmp_path).documents] == ["a.txt", "c.txt"]


@pytest.mark.parametrize(
    "edit",
    [
        lambda t: "w3 " + t,
        lambda t: t + " " + prose(9, 1200),
        lambda t: t[len(t) // 2 :],
        lambda t: t.upper()[:-7],
    ],
)
def test_a_held_out_copy_is_refused(tokenizer: Any, edit: Edit) -> None:
    for seed in range(4):
        with pytest.raises(Refusal) as caught:
            text_frames(
                tokenizer,
                corpus(prose(1), edit(prose(1))),
                window=16,
                samples=1,
                held_out=1,
                seed=seed,
            )
        assert caught.value.reason is Reason.CONFLICT
        assert "copy" in caught.value.do


def test_texts_that_share_a_notice_are_no_copies(tokenizer: Any) -> None:
    notice = prose(5, 40)
    texts = [f"{notice} {prose(seed)}" for seed in (1, 2, 3)]
    split = text_frames(tokenizer, corpus(*texts), window=16, samples=4, held_out=2)
    assert len(split.held_out) == 2


def test_a_held_out_window_shares_no_passage_with_calibration(tokenizer: Any) -> None:
    passage = prose(7, 64)
    quoted = f"{prose(1, 448)} {passage}"
    quotes = f"{prose(2, 80)} {passage} {prose(3, 240)}"
    lengths = []
    for seed in range(8):
        split = text_frames(
            tokenizer, corpus(quoted, quotes), window=64, samples=5, held_out=5, seed=seed
        )
        sides = [
            {" ".join(map(str, f.token_ids[i : i + 32].tolist())) for f in side for i in range(33)}
            for side in (split.calibration, split.held_out)
        ]
        assert not sides[0] & sides[1]
        lengths.append(len(split.held_out))
    assert lengths == [5] * 8


def test_normal_is_letters_and_digits_without_case() -> None:
    assert normal("\ufeffA\u00df, b-1\r\n\t\u2460") == "assb11"
    assert normal(" .,;\n") == ""
