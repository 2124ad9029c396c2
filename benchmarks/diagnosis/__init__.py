"""Judges the diagnosis by a causal model of training runs whose causes are planted.

``job`` says what a run is, ``healthy`` draws sound ones, ``plants`` breaks them. ``loader``,
``rank`` and ``engine`` let the host, the device, the loader and the network work through time;
``recorder`` writes what costlens would have written. ``truth`` mends a cause in the same seed and
compares what is paid, and ``judging`` asks costlens. Nothing here knows a rule, nor its thresholds.
"""
