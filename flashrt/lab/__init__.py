"""The inference lab: inference executed for real on a small model, in exact virtual time.

What a record, a field or a picture means, and whose it is, is in ``catalog/ontology.yaml``.
"""
