"""Scorers of SGI-Bench, each as its authors compute it (`faithful`) and as intended (`fixed`)."""
