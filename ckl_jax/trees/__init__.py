"""Parameter trees: paths, and the split into leaves that train and leaves that do not."""
