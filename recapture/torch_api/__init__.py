"""What is private to torch, one file a concern, on every release from 2.0.1 on."""
