"""What keeps a run's work and its account safe when its process is taken away."""
