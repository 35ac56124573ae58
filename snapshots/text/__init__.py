"""Texts of pages and PDFs: extraction, storage in the snapshot, tables and full-text search."""
