"""What users declare (cases, workloads, claims, compilers), and how the files are collected and hashed."""
