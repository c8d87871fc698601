"""Lowering: a graph becomes one pure function of parameters, variables and inputs."""
