"""What `benchmarks.damage` is made of: what is recorded and in which forms, harms, the questions asked, bounded cases."""
