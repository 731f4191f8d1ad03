"""Was the thing that was timed the thing that was judged? The attacks that were looked for."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from flashrt.gate.reading import Malformed, field, integer, many, text
from flashrt_runtime.reason import Because, Reason


class Attack(Enum):
    """A way to win a race without doing the work: its reason, and the sentence that names it."""

    NO_OP_REPLAY = (
        Reason.NEVER_CALLED,
        "a no-op replay: what came back is the poison that the last output was filled with",
    )
    INPUT_MUTATION = (Reason.INTEGRITY, "input mutation: the arm wrote into what it was given")
    POINTER_MEMO = (
        Reason.CONSTANT,
        "memoisation on pointers: the answer was kept by the address of the input",
    )
    PART_MEMO = (
        Reason.CONSTANT,
        "memoisation on first elements: the answer was kept by a part of the input",
    )
    STALE_ANSWER = (
        Reason.CONSTANT,
        "memoisation: a timed replay gave the answer to inputs of an earlier one",
    )
    KEPT_OUTPUT = (
        Reason.INTEGRITY,
        "a kept output: a later call overwrote what an earlier call had returned",
    )
    THREAD_WORK = (
        Reason.INTEGRITY,
        "work left on a thread: it went on after the clock had stopped",
    )
    SIDE_STREAM = (
        Reason.INTEGRITY,
        "work left on a side stream: the device was busy after the arm's own stream was done",
    )
    PATCHED_CLOCK = (Reason.INTEGRITY, "a patched clock: time was not the machine's own")
    FIRST_CALLS = (Reason.INTEGRITY, "an output that is correct only for the first calls")
    TIMED_OUTPUT = (Reason.INTEGRITY, "a timed output is not the one that was judged")
    HOST_CHANGED = (
        Reason.INTEGRITY,
        "host sabotage: what the host runs under or answers changed while the treated arm ran",
    )

    @property
    def reason(self) -> Reason:
        """The reason that a finding becomes."""
        return self.value[0]

    @property
    def sentence(self) -> str:
        """What the attack is called."""
        return self.value[1]

    @property
    def label(self) -> str:
        """Its name in evidence, e.g. ``pointer_memo``."""
        return self.name.lower()


ATTACKS = {attack.label: attack for attack in Attack}
# Streams are a device's: whoever measures on a CPU looks at threads instead.
REQUIRED = frozenset(ATTACKS) - {Attack.SIDE_STREAM.label}
REQUIRED_ON_DEVICE = frozenset(ATTACKS)


@dataclass(frozen=True)
class Finding:
    """One attack that was seen: where (a seam or an arm), and what was seen."""

    attack: Attack
    subject: str
    detail: str

    def record(self) -> dict[str, str]:
        """JSON form."""
        return {"attack": self.attack.label, "subject": self.subject, "detail": self.detail}

    def because(self, process: int) -> Because:
        """The reason that a verdict lists."""
        sentence = f"{self.attack.sentence}: {self.detail}"
        return Because(self.attack.reason, sentence, f"process {process}, {self.subject}")


@dataclass(frozen=True)
class Integrity:
    """What one process looked for, and what it found."""

    process: int
    looked_for: tuple[str, ...]
    findings: tuple[Finding, ...]

    def reasons(self, *, on_device: bool = False) -> list[Because]:
        """Every finding, and INCOMPLETE for an attack that was not looked for.

        ``on_device``: the arms ran on a device with a driver, which has streams.
        """
        required = REQUIRED_ON_DEVICE if on_device else REQUIRED
        missing = sorted(required - set(self.looked_for))
        found = [finding.because(self.process) for finding in self.findings]
        if missing:
            detail = f"not looked for: {', '.join(missing)}"
            found.append(Because(Reason.INCOMPLETE, detail, f"process {self.process}, integrity"))
        return found


def _attack(value: Any, path: str) -> str:
    if not isinstance(value, str) or value not in ATTACKS:
        raise Malformed(path, "no attack is called that")
    return value


def _finding(body: Any, path: str) -> Finding:
    label = _attack(field(body, "attack", path), f"{path}.attack")
    return Finding(ATTACKS[label], text(body, "subject", path), text(body, "detail", path))


def read_integrity(body: Any, path: str) -> Integrity:
    """One process's record. Raises :class:`~flashrt.gate.reading.Malformed`."""
    return Integrity(
        integer(body, "process", path),
        many(body, "looked_for", path, _attack),
        many(body, "findings", path, _finding),
    )
