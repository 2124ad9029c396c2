"""Measurements: what watching costs and how true it is."""
