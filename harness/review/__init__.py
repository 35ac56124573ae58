"""Reviews: why an answer was wrong, said by people (`reviews.py`), and the page on which they say it (`page.py`)."""
