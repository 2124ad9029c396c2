"""Accounts: pure functions from the ranks' records to time, speed, goodput and money of a run."""
