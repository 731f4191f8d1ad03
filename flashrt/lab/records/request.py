"""What a caller asks for: text, how to generate, and when it arrives."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Literal

from flashrt.lab.records.base import Checked, Says


@dataclass(frozen=True)
class GenerationPolicy(Checked):
    """The budget of one request, and how tokens are selected and when it ends."""

    max_output_tokens: Annotated[
        int, Says("Selections that may be made, the one that ends the turn too.", "tokens", least=1)
    ]
    selection: Annotated[Literal["greedy"], Says("How a token is chosen from the scores.")] = (
        "greedy"
    )
    termination: Annotated[Literal["turn_end"], Says("Which selection ends the response.")] = (
        "turn_end"
    )


@dataclass(frozen=True)
class InferenceRequest(Checked):
    """One invocation: its input and its own generation settings."""

    text: Annotated[str, Says("What the user says; never read as tags.")]
    generation: Annotated[GenerationPolicy, Says("Budget, selection and termination.")]


@dataclass(frozen=True)
class RequestArrival(Checked):
    """A request, its identity and when it arrives. Arriving is not being admitted."""

    request_id: Annotated[str, Says("The request's name, unique in its workload.")]
    arrival_us: Annotated[Fraction, Says("When it arrives.", "virtual us", least=0)]
    request: Annotated[InferenceRequest, Says("What is asked for.")]
