"""Tables, curves and figures of ranking: begin with `ranking_report.py`."""
