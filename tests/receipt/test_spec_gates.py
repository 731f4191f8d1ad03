from __future__ import annotations

from flashrt.gate.thresholds import declare
from flashrt.receipt.spec_gates import catalog_gates
from flashrt.spec import load


def test_the_catalog_s_gates_are_those_of_its_specs():
    spec = load("autoregressive_decode_pipeline")
    found = catalog_gates(spec.name, spec.version)
    assert found is not None
    assert (found.digest, found.metric, found.margin) == (
        spec.digest,
        spec.gates.metric,
        spec.gates.margin,
    )
    assert declare(found).band_pass == spec.gates.bands["pass"]


def test_a_spec_that_the_catalog_does_not_have_has_no_gates():
    assert catalog_gates("no_such_structure", 1) is None
    assert catalog_gates("decoder_ffn", 999) is None
