"""The demo's training jobs: a small real model on real text, watched from outside.

They know nothing of how they are watched: the Lightning job takes callbacks, the plain job takes a
run. The command that calls them is in the room above.
"""
