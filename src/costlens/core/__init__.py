"""The core of a run: what the training thread writes, and how windows are made of it."""
