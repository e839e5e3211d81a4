"""From dumps of Wikipedia and Wikidata to dated training text and probes (docs/dumps.md)."""
