"""Reviews by people of why an answer was wrong (`reviews.py`), and the page to enter them (`page.py`)."""
