"""Readers that no one here wrote, behind a running proxy: what they make of every recorded wire."""
