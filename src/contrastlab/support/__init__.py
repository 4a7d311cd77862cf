"""What every room stands on: errors, files, seeds, checksums, what is shipped, and where a number comes from."""
