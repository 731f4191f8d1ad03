"""Which impl form executes a decision, asked once a kind of seam."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from flashrt.scheme.decision import Bind
from flashrt.scheme.registry import fusions_of
from flashrt.scheme.structures import is_fusion
from flashrt_runtime.contract import Seam
from flashrt_runtime.reason import Because, Reason, Refusal

Select = Callable[..., Any]  # flashrt_runtime.impl_loader.select


@dataclass(frozen=True)
class Forms:
    """The forms of one scheme for one device and number of rows; ``dtype`` is a seam's own."""

    scheme: str
    device: str
    rows: int
    dtype: Callable[[Seam], str]
    select: Select
    found: dict[Any, Any] = field(default_factory=dict)

    def of(self, seam: Seam) -> Any:
        """The seam's ``ImplForm``, or a :class:`Because` that says why none serves.

        Raises :class:`Refusal` (AMBIGUOUS) when two serve: a mistake in the manifests, and no
        property of this seam.
        """
        key = (seam.structure, tuple(sorted(seam.variant.items())), self.dtype(seam))
        if key not in self.found:
            self.found[key] = self._select(seam)
        found = self.found[key]
        return Because(found.reason, found.detail, seam.id) if _no(found) else found

    def serves(self, seam: Seam) -> bool:
        """Whether there is a form."""
        return not _no(self.of(seam))

    def _select(self, seam: Seam) -> Any:
        asked = fusions_of(self.scheme) if is_fusion(seam.structure) else self.scheme
        try:
            return self.select(
                seam.structure,
                asked,
                self.device,
                self.rows,
                dict(seam.variant),
                dtype=self.dtype(seam),
            )
        except Refusal as refusal:
            if refusal.reason is Reason.AMBIGUOUS:
                raise
            return Because(refusal.reason, refusal.what)


def _no(found: Any) -> bool:
    return isinstance(found, Because)


def executes(form: Any, decision: Bind, seam: Seam) -> Because | None:
    """Why a form cannot execute these scales; ``None`` when it can.

    A form's static points take one scale each, for the whole tensor, and its other points none.
    """
    static = {point for point, how in form.spec.points.items() if how == "static"}
    missing = sorted(static - decision.scales.keys())
    if missing:
        what = f"form {form.form} takes a static scale at {missing[0]} and the scheme gives none"
        return Because(Reason.FORM, what, seam.id)
    idle = sorted(decision.scales.keys() - static)
    if idle:
        what = f"form {form.form} takes no scale at {idle[0]} and the scheme gives one"
        return Because(Reason.FORM, what, seam.id)
    grouped = sorted(point for point, scale in decision.scales.items() if isinstance(scale, tuple))
    if grouped:
        what = f"form {form.form} takes one scale at {grouped[0]} and the scheme gives several"
        return Because(Reason.FORM, what, seam.id)
    return None


def impl_record(seam: Seam, form: Any) -> Mapping[str, str]:
    """``{"structure", "backend", "form"}``."""
    return {
        "structure": seam.structure,
        "backend": str(form.backend),
        "form": str(form.form),
    }
