"""What leaves the process: one catalog, and the exporters that read it."""
