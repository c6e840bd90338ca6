"""Pinned images: locking their packages, and building and running them with a container engine."""
