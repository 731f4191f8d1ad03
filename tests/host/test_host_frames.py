from pathlib import Path
from typing import Any

import pytest

from flashrt.host.corpus import Corpus, TextDocument, folder_corpus
from flashrt.host.frames import Split, frames_by_id, text_frames
from flashrt_runtime.reason import Reason, Refusal


def draw(tokenizer: Any, folder: Path, **options: Any) -> Split:
    settings = {"window": 16, "samples": 6, "held_out": 4} | options
    return text_frames(tokenizer, folder_corpus(folder), **settings)


def test_no_document_is_on_both_sides(tokenizer: Any, text_folder: Path) -> None:
    for seed in range(8):
        split = draw(tokenizer, text_folder, seed=seed)
        ours = {f.document for f in split.calibration}
        theirs = {f.document for f in split.held_out}
        assert ours
        assert theirs
        assert not ours & theirs


def test_frames_are_full_windows_of_real_text_and_all_differ(
    tokenizer: Any, text_folder: Path
) -> None:
    split = draw(tokenizer, text_folder, samples=20, held_out=10)
    frames = (*split.calibration, *split.held_out)
    documents = {d.id: d.text.split() for d in folder_corpus(text_folder).documents}
    assert len({f.digest for f in frames}) == len({f.id for f in frames}) == 30
    for frame in frames:
        assert frame.token_ids.shape == (16,)
        start = int(frame.id.rpartition("#")[2])
        words = tokenizer.convert_ids_to_tokens(frame.token_ids.tolist())
        assert words == documents[frame.document][start : start + 16]


def test_categories_have_their_share_and_positions_are_spread(
    tokenizer: Any, text_folder: Path
) -> None:
    split = draw(tokenizer, text_folder, samples=24, held_out=8)
    for frames, share in ((split.calibration, 12), (split.held_out, 4)):
        assert sum(f.category == "news" for f in frames) == share
    starts = [int(f.id.rpartition("#")[2]) for f in split.calibration]
    assert min(starts) < 64
    assert max(starts) >= 112


def test_the_seed_decides_and_nothing_else_does(tokenizer: Any, text_folder: Path) -> None:
    first = draw(tokenizer, text_folder, seed=3)
    assert draw(tokenizer, text_folder, seed=3).workload() == first.workload()
    assert draw(tokenizer, text_folder, seed=4).workload() != first.workload()


def test_frames_are_cut_again_by_id(tokenizer: Any, text_folder: Path) -> None:
    split = draw(tokenizer, text_folder)
    ids = [f.id for f in split.held_out]
    again = frames_by_id(tokenizer, folder_corpus(text_folder), ids, 16)
    assert [f.record() for f in again] == [f.record() for f in split.held_out]
    for absent in ("nowhere#0", "news/d0.txt#190", "news/d0.txt", "news/d0.txt#-1"):
        with pytest.raises(Refusal) as caught:
            frames_by_id(tokenizer, folder_corpus(text_folder), [absent], 16)
        assert caught.value.reason is Reason.EMPTY_CORPUS


@pytest.mark.parametrize("options", [{"samples": 500}, {"held_out": 90}, {"window": 201}])
def test_too_little_text_is_refused_not_padded(
    tokenizer: Any, text_folder: Path, options: dict[str, int]
) -> None:
    with pytest.raises(Refusal, match="were asked for") as caught:
        draw(tokenizer, text_folder, **options)
    assert caught.value.reason is Reason.EMPTY_CORPUS


def test_one_document_cannot_be_split(tokenizer: Any) -> None:
    one = Corpus("one", "one", (TextDocument("a", "x", "w1 " * 100),))
    with pytest.raises(Refusal, match="both sides") as caught:
        text_frames(tokenizer, one, window=8, samples=2, held_out=1)
    assert caught.value.reason is Reason.EMPTY_CORPUS


def test_repeated_text_is_one_frame(tokenizer: Any) -> None:
    same = Corpus("same", "same", (TextDocument("a", "x", "w1 " * 100),))
    with pytest.raises(Refusal, match="hold 1") as caught:
        text_frames(tokenizer, same, window=8, samples=2, held_out=0)
    assert caught.value.reason is Reason.EMPTY_CORPUS


@pytest.mark.parametrize("options", [{"window": 1}, {"samples": 0}, {"held_out": -1}, {"seed": -1}])
def test_numbers_that_make_no_sense_are_refused(
    tokenizer: Any, text_folder: Path, options: dict[str, int]
) -> None:
    with pytest.raises(Refusal) as caught:
        draw(tokenizer, text_folder, **options)
    assert caught.value.reason is Reason.CONFLICT


def test_a_host_without_a_tokenizer_has_no_text(text_folder: Path) -> None:
    with pytest.raises(Refusal) as caught:
        draw(None, text_folder)
    assert caught.value.reason is Reason.HOST
