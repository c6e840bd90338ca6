"""What people found out: published claims, known issues, findings, changes between releases and between devices."""
