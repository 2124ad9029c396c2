"""GPUs that do not exist: a stand-in for the driver's library, and the model that feeds it."""
