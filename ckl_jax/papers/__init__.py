"""One folder for each paper, with all that only it needs. No paper imports another."""
