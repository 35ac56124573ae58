"""What makes two requests the same: the lossless key, rules that join, sites, and what makes no difference."""
