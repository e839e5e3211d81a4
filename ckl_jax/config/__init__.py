"""Gin: finding, checking and binding files, and error sentences with file and line.

Begin with `gin_config.py`. The library itself reads no gin; only job functions are bound.
"""
