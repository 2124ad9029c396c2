"""Time and its bookkeeping: phases, clock, timeline, recorder, windows, records and the pipeline thread."""
