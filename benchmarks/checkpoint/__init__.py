"""Saves and loads of one state by costlens and by what people use today, side by side."""
