"""Finds the seams of a host by what one forward showed: a finder a structure, one composer."""

from flashrt.host.discovery.compose import Discovery, discover
from flashrt.host.discovery.near_miss import NearMiss

__all__ = ["Discovery", "NearMiss", "discover"]
