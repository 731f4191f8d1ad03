"""The execution forms: ordered sequences of what is done to a step before it is replayed.

The order is part of a claim: ``("compile", "cudagraph")`` is not ``("cudagraph",)``. ``segmented``
stands first and says that each part of the step is captured on its own, in the rest of the form.
"""

from __future__ import annotations

from flashrt_runtime.reason import Reason, Refusal

Form = tuple[str, ...]

WHOLE: tuple[Form, ...] = (("compile",), ("aot",), ("cudagraph",), ("compile", "cudagraph"))
DIAGNOSIS: Form = ("eager",)
FORMS: tuple[Form, ...] = (*WHOLE, *(("segmented", *rest) for rest in WHOLE), DIAGNOSIS)


def text_of(form: Form) -> str:
    """As it is typed, e.g. ``compile+cudagraph``."""
    return "+".join(form)


def known_form(form: Form, subject: str = "form") -> Form:
    """``form`` as a tuple. Raises :class:`Refusal` (FORM) for a sequence that is none of ours."""
    given = tuple(form)
    if given not in FORMS:
        known = ", ".join(str(list(one)) for one in FORMS)
        what = f"the form {list(given)} is unknown; the forms are {known}"
        raise Refusal(Reason.FORM, what, subject=subject)
    return given


def parse_form(text: str, subject: str = "form") -> Form:
    """Read ``compile``, ``segmented+aot`` …: a form that a claim may rest on.

    Raises :class:`Refusal` (FORM): an unknown form, and ``eager``, which is for diagnosis only.
    """
    form = known_form(tuple(text.split("+")), subject)
    if form == DIAGNOSIS:
        what = "an eager step is for diagnosis; no claim rests on it"
        raise Refusal(Reason.FORM, what, subject=subject, do="compile is the default")
    return form


def needs_cuda(form: Form) -> bool:
    """Whether the form can only be made on a CUDA device."""
    return "cudagraph" in form
