"""What users write: cases, workloads, claims and compilers; how files of them are collected and hashed."""
