"""The closed set of reasons: why a cell, a seam, a file or a call was refused.

Each reason has a stable code (``FRT…``) and one sentence. ``docs/reasons/<code>.md`` explains
it at length. Codes are never reused.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Reason(Enum):
    """A reason's code and the sentence that goes with it."""

    AMBIGUOUS = ("FRT001", "Two live answers fit, or the budget ended before the race decided.")
    IMPLAUSIBLE = ("FRT002", "The arm is faster than the roofline of its own cost function.")
    INCOMPLETE = ("FRT003", "The measurement was interrupted before its evidence was whole.")
    UNCAPTURABLE = ("FRT004", "The step cannot be captured in the form the deployment uses.")
    NOISE = ("FRT005", "The machine is too noisy for this margin: the null race says so.")
    NONFINITE = ("FRT006", "A value is NaN or infinite.")
    NEVER_CALLED = ("FRT007", "The path under judgement was never executed.")
    FALLBACK = ("FRT008", "A seam ran the host's module instead of its implementation.")
    ARCH = ("FRT009", "The kernel does not declare this device's architecture.")
    ARCH_ABSENT = ("FRT010", "The device asked for is not on this machine.")
    FORM = ("FRT011", "The executable form does not serve this call.")
    SHAPE = ("FRT012", "The shape is outside every measured band.")
    STALE_SPEC = ("FRT013", "The spec's bytes are not the ones the claim was made for.")
    LOSS = ("FRT014", "The treated arm is not faster than the host by the margin.")
    BAND_LOW = ("FRT015", "Parity is in the lowest band and no floor was stated.")
    FLOOR = ("FRT016", "A floor that the caller stated was not met.")
    ROLLBACK = ("FRT017", "Detaching did not restore the host bit for bit.")
    EMPTY_CONTROL = ("FRT018", "The unmodified host did not repeat itself bit for bit.")
    UNKNOWN_CELL = ("FRT019", "No receipt was earned for exactly these facts.")
    CHECKPOINT = ("FRT020", "The checkpoint is not the one that was measured or calibrated.")
    SIGNATURE = ("FRT021", "The signature is missing, broken, or by a key that is not trusted.")
    DIGEST = ("FRT022", "The bytes do not match the digest that names them.")
    SCHEMA = ("FRT023", "The document does not satisfy its schema.")
    STRUCTURE = ("FRT024", "The structure is unknown, or the host does not have it.")
    RETIRED = ("FRT025", "The structure version was retired.")
    BINDING = ("FRT026", "The binding does not fit the host or the catalog.")
    UNCALIBRATED = ("FRT027", "A point saw no value, so it has no scale.")
    DEAD = ("FRT028", "A point saw only zeros, so it has no scale.")
    UNDERSAMPLED = ("FRT029", "The samples are too few to express the percentile asked for.")
    OUTLIER = ("FRT030", "A scale is far above the host's median scale.")
    EMPTY_CORPUS = ("FRT031", "There are not enough frames to calibrate or judge with.")
    TRAINING = ("FRT032", "The model is in training mode.")
    MIGRATION = ("FRT033", "The model was asked to change device or dtype while attached.")
    LOAD_STATE = ("FRT034", "load_state_dict was called while attached.")
    THREAD = ("FRT035", "A second thread entered a seam.")
    DEVICE = ("FRT036", "The device differs from the one that was measured.")
    SOFTWARE = ("FRT037", "Software that affects dispatch differs from what was measured.")
    THRESHOLD = ("FRT038", "The thresholds are not the spec's own gates, or were lowered.")
    VERDICT = ("FRT039", "The verdict does not follow from the evidence.")
    STATISTIC = ("FRT040", "A statistic does not follow from the raw samples.")
    KEPT_HOST = ("FRT041", "The scheme decided to keep the host's precision here.")
    STORAGE = ("FRT042", "The store could not be written; nothing was lost.")
    LAYOUT = ("FRT043", "A tensor's layout is one that the region does not accept.")
    TIED = ("FRT044", "A weight is shared with another module.")
    SHARED_INPUT = ("FRT045", "The siblings were not observed to share one input in a fixed order.")
    DTYPE = ("FRT046", "The dtype differs from the declared one.")
    REVOKED = ("FRT047", "The receipt was withdrawn.")
    CONSTANT = ("FRT048", "The output does not depend on the input.")
    PERCENTILE = ("FRT049", "The statistic asked for is one that no collector measures.")
    CONFLICT = ("FRT050", "The names or paths given contradict each other.")
    HOST = ("FRT051", "The host or its weights could not be found or loaded safely.")
    SCALE = ("FRT052", "The treated output is not of the host's scale.")
    INTEGRITY = ("FRT053", "What was timed is not what was judged.")

    @property
    def code(self) -> str:
        """The stable code, e.g. ``FRT004``."""
        return self.value[0]

    @property
    def sentence(self) -> str:
        """One sentence that says what the reason means."""
        return self.value[1]

    @classmethod
    def of(cls, code: str) -> Reason:
        """The reason with this code. Raises ``KeyError`` for a code that does not exist."""
        for reason in cls:
            if reason.code == code:
                return reason
        raise KeyError(code)


@dataclass(frozen=True)
class Because:
    """One reason with what was seen: the unit that verdicts, trails and errors are made of."""

    reason: Reason
    detail: str
    subject: str = ""

    def record(self) -> dict[str, str]:
        """JSON form: ``{"code", "name", "detail", "subject"}``."""
        return {
            "code": self.reason.code,
            "name": self.reason.name,
            "detail": self.detail,
            "subject": self.subject,
        }

    @classmethod
    def from_record(cls, record: dict[str, str]) -> Because:
        """The inverse of :meth:`record`."""
        return cls(Reason.of(record["code"]), record["detail"], record.get("subject", ""))

    def __str__(self) -> str:
        where = f"{self.subject}: " if self.subject else ""
        return f"{where}{self.detail} [{self.reason.code} {self.reason.name}]"


class Refusal(Exception):
    """An operation that was not done, before anything was changed.

    ``str()`` reads ``subject: what is wrong; what to do [FRT… NAME]``.
    """

    def __init__(self, reason: Reason, what: str, *, subject: str = "", do: str = "") -> None:
        self.reason = reason
        self.what = what
        self.subject = subject
        self.do = do
        super().__init__(str(self))

    def because(self) -> Because:
        """The refusal as one reason."""
        return Because(self.reason, self.what, self.subject)

    def __str__(self) -> str:
        where = f"{self.subject}: " if self.subject else ""
        advice = f"; {self.do}" if self.do else ""
        return f"{where}{self.what}{advice} [{self.reason.code} {self.reason.name}]"
