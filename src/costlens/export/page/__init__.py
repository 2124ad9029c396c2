"""The report of a run as one HTML file that opens from disk and asks no network.

``windows`` reads what the segments hold and ``columns`` folds it, so that the page of a week is as
large as that of an hour. Each section is a module that makes tables and chart specifications of the
merged record; ``render`` puts them into the template.
"""
