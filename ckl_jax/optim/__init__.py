"""Optax transformations: optimizers, schedules, and the pulls and averages that methods use."""
