"""What users write: cases, workloads and compilers, and how their files are found and hashed."""
