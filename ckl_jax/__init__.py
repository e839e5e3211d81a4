"""Continual knowledge learning in JAX: update a language model, and measure what it kept,
updated, learned and forgot."""

__version__ = "0.1.0"
