"""Every view replayed and compared with what was recorded, and the page that shows it."""
