"""Planted truth: delays that spin and clock themselves, against what costlens books.

``python -m benchmarks.planted_truth`` prints the table of the README. A case is run twice, with and
without its plants, over the same number of iterations; the difference in each phase must be what
the plants' own clocks say.
"""
