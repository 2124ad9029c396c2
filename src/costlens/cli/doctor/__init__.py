"""What ``costlens doctor`` looks at before money is spent: a file a check, all with one shape.

A check is a function of the settings that returns answers (``answer.py``); ``checks.py`` lists
them, ``running.py`` runs them side by side. None trains, and none needs torch.
"""
