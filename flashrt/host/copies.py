"""Documents that are copies of one another, also when a word, the case or the spacing differs."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import TYPE_CHECKING

from flashrt_runtime.reason import Reason, Refusal

if TYPE_CHECKING:
    import numpy

    from flashrt.host.corpus import TextDocument

RUN = 48  # letters in a row that two documents must share before it counts
SHARE = 0.25  # of the shorter document's runs: more than a notice that all documents carry
_MIX = 0x9E3779B97F4A7C15


def normal(text: str) -> str:
    """Letters and digits only, without case: what stays of a text when its form is changed."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return "".join(c for c in folded if c.isalnum())


def require_no_copies(
    calibration: Sequence[TextDocument], held_out: Sequence[TextDocument]
) -> None:
    """Refuse (CONFLICT) a held-out document whose text a calibration document has as well.

    Normalised texts are compared in runs of letters at every offset, so that a copy with another
    beginning, end, case or spacing is found.
    """
    import numpy as np

    known = {document.id: _runs(document.text) for document in calibration}
    everything = np.unique(np.concatenate([np.zeros(0, np.uint64), *known.values()]))
    shortest = min((runs.size for runs in known.values()), default=0)
    for document in held_out:
        runs = _runs(document.text)
        common = np.intersect1d(runs, everything, assume_unique=True)
        if not common.size or common.size < SHARE * min(runs.size, shortest):
            continue
        for other, theirs in known.items():
            shared = np.intersect1d(common, theirs, assume_unique=True).size
            if shared and shared >= SHARE * min(runs.size, theirs.size):
                raise Refusal(
                    Reason.CONFLICT,
                    f"this held-out document has the text of {other}, which is calibrated on",
                    subject=document.id,
                    do="one is a copy of the other: exclude one of them",
                )


def _runs(text: str) -> numpy.ndarray:
    """Distinct runs of a normalised text, as uint64; a shorter text is one run."""
    import numpy as np

    letters = np.frombuffer(normal(text).encode("utf-32-le"), np.uint32).astype(np.uint64)
    length = min(RUN, len(letters))
    mixed = np.zeros(max(len(letters) - length + 1, 0), np.uint64)
    for offset in range(length):
        mixed = mixed * np.uint64(_MIX) + letters[offset : offset + len(mixed)]  # modulo 2**64
    return np.unique(mixed)
