"""What is watched outside our own code: process, place in the job, modules, loaders, devices."""
