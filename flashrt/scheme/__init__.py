"""Quantisation schemes: what each needs measured, and what each decides, seam by seam."""

from flashrt.scheme.overrides import Overrides
from flashrt.scheme.plan import Plan, plan
from flashrt.scheme.registry import get, names, resolve

__all__ = ["Overrides", "Plan", "get", "names", "plan", "resolve"]
