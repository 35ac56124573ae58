"""What is done to a whole snapshot: verified, compared, cut, brought up to date, searched for secrets."""
