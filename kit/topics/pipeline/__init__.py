"""Pipeline parallel: the model cut into stages, one after the other on different ranks."""
