"""What is watched outside our own code: the process, its place in the job, modules, loaders and device events."""
