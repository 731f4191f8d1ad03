"""Qualify and release faster implementations of model regions, with evidence."""
