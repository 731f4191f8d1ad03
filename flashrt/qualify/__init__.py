"""From a plan to receipts: fresh processes that measure, and one judgement over what they saw."""
