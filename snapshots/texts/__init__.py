"""What pages and PDFs say: extracted, frozen, shown and searched."""
