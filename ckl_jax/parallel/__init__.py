"""Devices and hosts: mesh, shardings, collectives, processes, simulated topologies.

Begin with `mesh.py` (`Partitioner`). `docs/pods.md` and `docs/scaling.md` show it in use.
"""
