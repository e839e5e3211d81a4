"""Many devices and hosts: mesh, shardings, collectives, processes, pretended TPU slices.

Begin with `mesh.py` (`Partitioner`). `docs/pods.md` and `docs/scaling.md` show it in use.
"""
