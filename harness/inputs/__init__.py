"""What people wrote, read strictly: JSON, YAML, values by a schema, code named by an import path, names of sessions."""
