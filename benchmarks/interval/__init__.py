"""A simulator of saves and failures that judges the interval policy against a static oracle."""
