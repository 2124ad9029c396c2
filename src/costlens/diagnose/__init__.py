"""Why a run is slow or in danger, and what it would save to mend that: pure functions.

Evidence is the difference of two records of one rank (``evidence``); a rule makes a finding of it,
or abstains and names the signal it lacks (``finding``). ``rules/`` holds a file a rule for what one
rank can see of itself, ``job/`` those that need all ranks.
"""
