"""Measurements of speed and memory; each is a command, each writes one file of results."""
