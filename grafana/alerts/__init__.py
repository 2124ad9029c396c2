"""Alerts: one entry each in the files of this folder, from which rules, runbook and tests come."""
