"""Pinned images: what they hold (pins), how it is fixed (locks), and how a container engine makes and runs them."""
