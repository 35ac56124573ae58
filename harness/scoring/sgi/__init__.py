"""The four scorers of SGI-Bench, each as its authors compute it (`faithful`, quirks included) and as it was meant (`fixed`)."""
